"""The inputs that drills are tested on."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache, lru_cache

from microcoder_core.data.drills.steps import Code, apply

_MIN_TESTS = 6
_POOL = 80


@cache
def pool() -> tuple[tuple[int, ...], ...]:
    """The lists that tests are drawn from and that compositions are told apart by: short and long, with repeats, zeros, negatives."""
    rng = random.Random("drill inputs")
    lists: list[tuple[int, ...]] = [(), (0,), (1,), (-3,), (5, 5)]
    while len(lists) < _POOL:
        low, high = rng.choice([(-5, 10), (0, 9), (1, 12), (-12, 30)])
        lists.append(tuple(rng.randint(low, high) for _ in range(rng.randint(2, 9))))
    return tuple(lists)


@lru_cache(maxsize=20_000)
def results(codes: tuple[Code, ...]) -> tuple[str, ...]:
    """What `codes` give on each list of the pool, typed as the judge compares."""
    return tuple(repr(apply(codes, list(numbers))) for numbers in pool())


def killed_by(codes: tuple[Code, ...], wrong: tuple[Code, ...]) -> list[list[int]]:
    """The lists of the pool on which `wrong` gives another result than `codes`."""
    return [list(numbers) for numbers, a, b in zip(pool(), results(codes), results(wrong), strict=True) if a != b]


def choose_inputs(codes: tuple[Code, ...], mistakes: Sequence[tuple[Code, ...]], rng: random.Random) -> list[list[int]]:
    """Inputs that tell every mistake from `codes`; those that do come first, the empty list last."""
    chosen: list[list[int]] = []
    for mistake in mistakes:
        killers = [numbers for numbers in killed_by(codes, mistake) if numbers]
        if killers and not any(numbers in killers for numbers in chosen):
            chosen.append(rng.choice(killers))
    longer = [list(numbers) for numbers in pool() if len(numbers) > 1]
    while len(chosen) < _MIN_TESTS - 1:
        numbers = rng.choice(longer)
        if numbers not in chosen:
            chosen.append(numbers)
    return [*chosen, []]


def weak_inputs(codes: tuple[Code, ...], mistakes: Sequence[tuple[Code, ...]], rng: random.Random) -> list[list[int]]:
    """Inputs on which the mistake that is hardest to notice gives what `codes` give."""
    killers = min((killed_by(codes, mistake) for mistake in mistakes), key=len)
    alike = [list(numbers) for numbers in pool() if list(numbers) not in killers]
    return rng.sample(alike, k=min(_MIN_TESTS - 1, len(alike)))
