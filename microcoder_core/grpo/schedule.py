"""What changes with the step: temperature stages and the learning rate."""

from __future__ import annotations

from collections.abc import Sequence

Stages = Sequence[tuple[int, float]]


def temperature_at(stages: Stages, step: int) -> tuple[int, float]:
    """Index and temperature of the stage that step (from 0) falls into.

    Stages are steps, never a ramp: even a short ramp shifts diversity for good (insight TEMP-10).
    """
    index = max(number for number, (start, _) in enumerate(stages) if start <= step)
    return index, stages[index][1]


def warmup_factor(update: int, warmup_steps: int) -> float:
    """Factor of the learning rate at an optimiser step (from 0): linear up to 1, then constant."""
    return min(1.0, (update + 1) / (warmup_steps + 1))
