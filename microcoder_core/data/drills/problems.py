"""Drills as Problems: compositions of one to three steps, split into training and held-out ones.

No held-out drill does what a training drill does, save a few planted ones: the raw training split also holds what real problem
collections hold, so that curation has something to find - the same task in other words, tests too weak to catch a wrong solution,
and tasks of the held-out split.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from microcoder_core.data.drills.cases import choose_inputs, killed_by, weak_inputs
from microcoder_core.data.drills.compositions import SEED, compositions
from microcoder_core.data.drills.steps import Code, Step, apply
from microcoder_core.data.drills.styles import STYLES
from microcoder_core.records import Checker, Difficulty, Problem, TestCase

Split = Literal["train", "held_out"]
Planted = Literal["duplicate", "weak_tests", "overlap"]
SOURCE = "microcoder drills"
_DUPLICATES, _OVERLAPS = 24, 10
_DIFFICULTIES: tuple[Difficulty, ...] = ("easy", "medium", "hard")
_WRONG_SOLUTIONS = 3
_TEMPLATES = ("Write f(xs): {}.", "Given xs, {}.", "For a list xs, {}.")
_JOINTS = (", then ", "; then ", ", and then ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Drill:
    """A composition of steps and the Problem made of it."""

    steps: tuple[Step, ...]
    problem: Problem
    planted: Planted | None = None
    """Why curation should drop it; null for a sound drill."""

    @property
    def codes(self) -> tuple[Code, ...]:
        return tuple(step.code for step in self.steps)


def drill_problems(split: Split) -> Iterator[Problem]:
    """The problems of a split, in a fixed order."""
    return (drill.problem for drill in drills(split))


@cache
def drills(split: Split) -> tuple[Drill, ...]:
    """The drills of a split, in a fixed order; the planted ones are spread among the others."""
    plan = compositions()
    rng = random.Random(f"{SEED} {split}")
    entries: list[tuple[tuple[Step, ...], Planted | None]] = [(steps, None) for steps in plan[split]]
    if split == "train":
        entries += [(steps, "duplicate") for steps in rng.sample(plan["train"], _DUPLICATES)]
        entries += [(steps, "overlap") for steps in rng.sample(plan["held_out"], _OVERLAPS)]
        entries += [(steps, "weak_tests") for steps in plan["weak"]]
    rng.shuffle(entries)
    name = split.replace("_", "-")
    return tuple(_drill(steps, planted, f"drill-{name}-{number:04}") for number, (steps, planted) in enumerate(entries, start=1))


def statement_of(steps: Sequence[Step], rng: random.Random) -> str:
    """One of the ways to word a drill."""
    words = rng.choice(steps[0].wordings)
    for step in steps[1:]:
        words += rng.choice(_JOINTS) + rng.choice(step.wordings)
    return rng.choice(_TEMPLATES).format(words)


def _drill(steps: tuple[Step, ...], planted: Planted | None, problem_id: str) -> Drill:
    rng = random.Random(f"{SEED} {problem_id}")
    codes = tuple(step.code for step in steps)
    mistakes = rng.sample(wrong_codes(steps), k=len(wrong_codes(steps)))[:_WRONG_SOLUTIONS]
    inputs = weak_inputs(codes, mistakes, rng) if planted == "weak_tests" else choose_inputs(codes, mistakes, rng)
    references = dict.fromkeys(style(codes) for style in STYLES)  # in this order: one task has one first reference
    problem = Problem(
        problem_id=problem_id,
        source=SOURCE,
        statement=statement_of(steps, rng),
        form="function",
        entry_point="f",
        tests=tuple(TestCase(input=[numbers], expected=apply(codes, numbers)) for numbers in inputs),
        checker=Checker(kind="exact"),
        tags=("drill", *dict.fromkeys(step.code.kind for step in steps)),
        difficulty=_DIFFICULTIES[len(steps) - 1],
        reference_solutions=tuple(references),
        wrong_solutions=tuple(rng.choice(STYLES)(mistake) for mistake in mistakes),
        licence="Apache-2.0",
    )
    return Drill(steps=steps, problem=problem, planted=planted)


def wrong_codes(steps: Sequence[Step]) -> list[tuple[Code, ...]]:
    """The codes of `steps` with one slip, or with one step left out, that give another result on some list."""
    codes = tuple(step.code for step in steps)
    found = [(*codes[:place], slip, *codes[place + 1 :]) for place, step in enumerate(steps) for slip in step.slipped()]
    if len(codes) > 1:
        found += [codes[:place] + codes[place + 1 :] for place in range(len(codes))]
    return [wrong for wrong in found if killed_by(codes, wrong)]
