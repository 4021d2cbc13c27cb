"""The steps that drills are composed of: how each is worded, written in Python, and commonly written wrong.

A step's code is a condition on `x` (filter), an expression in `x` (map), or an expression with `{}` for the list (whole, reduce).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple

StepKind = Literal["filter", "map", "whole", "reduce"]
RARE_SLIP = 0.06
COMMON_SLIP = 0.4
"""Chance of a slip in the nano model's pre-training text: at `COMMON_SLIP` the error is about as usual as the right code."""


class Code(NamedTuple):
    """One step as a program has it."""

    kind: StepKind
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One operation on a list of integers."""

    code: Code
    wordings: tuple[str, ...]
    slips: tuple[str, ...]
    """Code of the same kind that people write by mistake."""
    slip_rate: float = RARE_SLIP

    def slipped(self) -> Iterator[Code]:
        return (Code(self.code.kind, text) for text in self.slips)


def apply(codes: Sequence[Code], numbers: list[int]) -> Any:
    """What `codes` make of `numbers`, or the exception's class where they raise one."""
    value: Any = list(numbers)
    try:
        for code in codes:
            value = _function(code)(value)
    except (ValueError, TypeError, IndexError, ZeroDivisionError) as error:
        return type(error)
    return value


@cache
def _function(code: Code) -> Callable[[list[int]], Any]:
    function: Callable[[list[int]], Any] = eval(f"lambda xs: {expression(code, 'xs')}")  # text of this module only, nothing from outside
    return function


def expression(code: Code, numbers: str) -> str:
    """`code` applied to the expression `numbers`."""
    if code.kind == "filter":
        return f"[x for x in {numbers} if {code.text}]"
    if code.kind == "map":
        return f"[{code.text} for x in {numbers}]"
    return code.text.replace("{}", numbers)


def _step(kind: StepKind, text: str, wordings: Sequence[str], slips: Sequence[str], slip_rate: float = RARE_SLIP) -> Step:
    return Step(code=Code(kind, text), wordings=tuple(wordings), slips=tuple(slips), slip_rate=slip_rate)


def _plain_filters() -> Iterator[Step]:
    yield _step("filter", "x % 2 == 0", ["keep the even numbers", "drop the odd numbers"], ["x % 2 == 1", "x % 2"])
    yield _step("filter", "x % 2 == 1", ["keep the odd numbers", "drop the even numbers"], ["x % 2 == 0"])
    yield _step("filter", "x > 0", ["keep the positive numbers"], ["x >= 0"], COMMON_SLIP)
    yield _step("filter", "x < 0", ["keep the negative numbers"], ["x <= 0", "x > 0"])


def _filters_with(k: int) -> Iterator[Step]:
    yield _step("filter", f"x > {k}", [f"keep the numbers greater than {k}", f"keep what is above {k}"], [f"x >= {k}", f"x < {k}"])
    yield _step("filter", f"x < {k}", [f"keep the numbers less than {k}", f"keep what is below {k}"], [f"x <= {k}", f"x > {k}"])
    yield _step("filter", f"x >= {k}", [f"keep the numbers that are at least {k}", f"drop what is below {k}"], [f"x > {k}"], COMMON_SLIP)
    yield _step("filter", f"x <= {k}", [f"keep the numbers that are at most {k}", f"drop what is above {k}"], [f"x < {k}"], COMMON_SLIP)
    yield _step("filter", f"x != {k}", [f"drop every {k}", f"keep the numbers that are not {k}"], [f"x == {k}", f"x > {k}"])


def _multiples_of(k: int) -> Iterator[Step]:
    yield _step("filter", f"x % {k} == 0", [f"keep the multiples of {k}"], [f"x // {k} == 0", f"x % {k} != 0"])
    yield _step("filter", f"x % {k} != 0", [f"drop the multiples of {k}"], [f"x % {k} == 0", f"x != {k}"])


def _plain_maps() -> Iterator[Step]:
    yield _step("map", "x * x", ["square each number"], ["x * 2"], COMMON_SLIP)
    yield _step("map", "-x", ["change the sign of each number", "negate each number"], ["abs(x)"])
    yield _step("map", "abs(x)", ["take the absolute value of each number"], ["-x", "x"])
    yield _step("map", "x // 2", ["halve each number, rounding down"], ["x / 2"], COMMON_SLIP)


def _maps_with(k: int) -> Iterator[Step]:
    yield _step("map", f"x + {k}", [f"add {k} to each number", f"increase each number by {k}"], [f"x - {k}", f"x * {k}"])
    yield _step("map", f"x - {k}", [f"subtract {k} from each number", f"decrease each number by {k}"], [f"{k} - x", f"x + {k}"])
    yield _step("map", f"{k} - x", [f"subtract each number from {k}"], [f"x - {k}"], COMMON_SLIP)
    yield _step("map", f"x * {k}", [f"multiply each number by {k}"], [f"x + {k}", f"x ** {k}"])
    yield _step("map", f"x % {k}", [f"take each number modulo {k}"], [f"x // {k}"])


def _plain_wholes() -> Iterator[Step]:
    yield _step("whole", "{}[::-1]", ["reverse the list"], ["sorted({}, reverse=True)", "{}[::1]"])
    yield _step("whole", "sorted({})", ["sort the list", "sort from low to high"], ["sorted({}, reverse=True)", "sorted(set({}))"])
    yield _step("whole", "sorted({}, reverse=True)", ["sort from high to low"], ["sorted({})", "{}[::-1]"])
    yield _step("whole", "{}[::2]", ["take every second number"], ["{}[1::2]", "{}[:2]"])
    yield _step("whole", "list(dict.fromkeys({}))", ["drop repeated numbers", "keep each number once"], ["list(set({}))"], COMMON_SLIP)


def _wholes_with(k: int) -> Iterator[Step]:
    yield _step("whole", f"{{}}[:{k}]", [f"take the first {k}"], [f"{{}}[:{k - 1}]", f"{{}}[{k}:]"])
    yield _step("whole", f"{{}}[{k}:]", [f"skip the first {k}"], [f"{{}}[{k - 1}:]", f"{{}}[:{k}]"])
    yield _step("whole", f"{{}}[-{k}:]", [f"take the last {k}"], [f"{{}}[{k}:]"], COMMON_SLIP)
    yield _step("whole", f"{{}}[:-{k}]", [f"skip the last {k}"], [f"{{}}[-{k}:]", f"{{}}[:{k}]"])


def _reduces() -> Iterator[Step]:
    yield _step("reduce", "sum({})", ["return the sum", "add everything up"], ["len({})", "max({}, default=0)"])
    yield _step("reduce", "len({})", ["count them", "return how many there are"], ["sum({})", "len({}) - 1"])
    yield _step("reduce", "max({}, default=0)", ["return the largest, or 0 if none"], ["max({})"], COMMON_SLIP)
    yield _step("reduce", "min({}, default=0)", ["return the smallest, or 0 if none"], ["max({}, default=0)", "min({})"])


def all_steps() -> tuple[Step, ...]:
    """Every step there is, in a fixed order."""
    found = [*_plain_filters(), *_plain_maps(), *_plain_wholes(), *_reduces()]
    for k in range(2, 10):
        found += [*_filters_with(k), *_maps_with(k)]
    for k in range(3, 8):
        found += _multiples_of(k)
    for k in range(2, 6):
        found += _wholes_with(k)
    return tuple(found)
