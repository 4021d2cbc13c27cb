"""Drills: short list-processing tasks as Problems, generated the same on every machine. What the nano model learns on."""

from microcoder_core.data.drills.problems import Drill, Split, drill_problems, drills

__all__ = ["Drill", "Split", "drill_problems", "drills"]
