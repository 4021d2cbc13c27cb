"""Which compositions of steps are drills, and of which split."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from typing import Literal

from microcoder_core.data.drills.cases import results
from microcoder_core.data.drills.steps import Step, all_steps

SEED = 20260701
Share = Literal["train", "held_out", "weak"]
_COUNTS: dict[Share, tuple[int, int, int]] = {"held_out": (20, 90, 90), "weak": (0, 10, 0), "train": (60, 320, 340)}
"""Drills of one, two and three steps. `weak` are the training drills that get weak tests."""
_MIN_RESULTS = 12  # of the pool's lists; a drill with fewer different results is too easily guessed


@cache
def compositions() -> dict[Share, list[tuple[Step, ...]]]:
    """The compositions of each share; no two of them, in whichever share, give the same results."""
    rng = random.Random(SEED)
    seen: set[tuple[str, ...]] = set()
    shares: dict[Share, list[tuple[Step, ...]]] = {share: [] for share in _COUNTS}
    for length in (1, 2, 3):
        candidates = _candidates(length, rng)
        for share, counts in _COUNTS.items():
            for _ in range(counts[length - 1]):
                shares[share].append(_next_new(candidates, seen))
    return shares


def _candidates(length: int, rng: random.Random) -> Iterator[tuple[Step, ...]]:
    steps = all_steps()
    if length == 1:
        yield from ((step,) for step in rng.sample(steps, k=len(steps)))
        return
    reduces = [step for step in steps if step.code.kind == "reduce"]
    others = [step for step in steps if step.code.kind != "reduce"]
    while True:
        last = rng.choice(reduces if rng.random() < 0.3 else others)
        yield (*(rng.choice(others) for _ in range(length - 1)), last)


def _next_new(candidates: Iterator[tuple[Step, ...]], seen: set[tuple[str, ...]]) -> tuple[Step, ...]:
    """The next candidate in which every step matters and whose results are new."""
    for steps in candidates:
        codes = tuple(step.code for step in steps)
        found = results(codes)
        shorter = [results(codes[:place] + codes[place + 1 :]) for place in range(len(codes))] if len(codes) > 1 else []
        if found not in seen and found not in shorter and len(set(found)) >= _MIN_RESULTS:
            seen.add(found)
            return steps
    raise AssertionError("there are fewer compositions than _COUNTS asks for")
