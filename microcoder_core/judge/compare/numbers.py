"""Real numbers within a tolerance, absolute or relative; everything else exact.

A number is close only where its stored answer is real (written with a point or an exponent, or a JSON float) or the problem declares
kind `float`; two integers are always compared digit by digit. Infinities and NaN are close to nothing. Shapes come first.
"""

from __future__ import annotations

import math
import re
from typing import Any

from microcoder_core.judge.compare import text
from microcoder_core.judge.compare.canonical import canonical
from microcoder_core.values import JsonValue

_INTEGER = re.compile(rb"[+-]?[0-9]+")
_NUMBER = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
DEFAULT_TOLERANCE = 1e-6


def has_real(expected: str) -> bool:
    """Whether any token of `expected` is a real number."""
    return any(_is_real(token) for token in text.tokens(expected))


def has_real_value(expected: JsonValue) -> bool:
    """Whether any leaf of a function result is a float."""
    if isinstance(expected, dict):
        return "$float" in expected or any(map(has_real_value, expected.values()))
    if isinstance(expected, list):
        return any(map(has_real_value, expected))
    return isinstance(expected, float)


def close_tokens(expected: str, output: str, abs_tolerance: float, rel_tolerance: float, reals_only: bool) -> bool:
    """Whether both hold as many tokens and each is the same or close.

    Args:
        reals_only: Whether a stored integer must be met exactly (kind `auto`), rather than by a real close to it (declared `float`).
    """
    wanted, got = text.tokens(expected), text.tokens(output)
    if len(wanted) != len(got):
        return False
    for want, have in zip(wanted, got, strict=True):
        if want == have:
            continue
        comparable = _NUMBER.fullmatch(have) and (_is_real(want) or (not reals_only and _NUMBER.fullmatch(want) and _is_real(have)))
        if not comparable or not is_close(float(want), float(have), abs_tolerance, rel_tolerance):
            return False
    return True


def close_values(expected: JsonValue, output: JsonValue, abs_tolerance: float, rel_tolerance: float, reals_only: bool) -> bool:
    """Whether both have one structure and each leaf is equal or close."""
    expected, output = _untupled(expected), _untupled(output)
    if isinstance(expected, list) and isinstance(output, list):
        return len(expected) == len(output) and all(
            close_values(want, have, abs_tolerance, rel_tolerance, reals_only) for want, have in zip(expected, output, strict=True)
        )
    if _is_plain_dict(expected) and _is_plain_dict(output):
        return expected.keys() == output.keys() and all(
            close_values(want, output[key], abs_tolerance, rel_tolerance, reals_only) for key, want in expected.items()
        )
    if _is_number(expected) and _is_number(output) and (type(expected) is float or (type(output) is float and not reals_only)):
        return is_close(expected, output, abs_tolerance, rel_tolerance)
    return canonical(expected) == canonical(output)


def is_close(want: float, have: float, abs_tolerance: float, rel_tolerance: float) -> bool:
    """Whether two finite numbers differ by at most one of the tolerances; the relative one is of `want`."""
    try:
        difference = abs(want - have)
    except OverflowError:  # an integer beyond the range of floats
        return False
    return math.isfinite(difference) and difference <= max(abs_tolerance, rel_tolerance * abs(want))


def _is_real(token: bytes) -> bool:
    return _NUMBER.fullmatch(token) is not None and _INTEGER.fullmatch(token) is None


def _is_number(value: JsonValue) -> bool:
    return type(value) in (int, float)


def _is_plain_dict(value: JsonValue) -> bool:
    return isinstance(value, dict) and not (len(value) == 1 and next(iter(value)).startswith("$"))


def _untupled(value: JsonValue) -> Any:
    if isinstance(value, dict) and len(value) == 1 and "$tuple" in value:
        return value["$tuple"]
    return value
