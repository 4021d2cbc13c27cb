"""Approximate numbers: numpy.allclose's formula on all numbers at once, then rounding to three places."""

from __future__ import annotations

import math
from typing import Any

from microcoder_core.values import JsonValue, decode

_RTOL, _ATOL = 1e-5, 1e-8


def close_or_rounded(expected: JsonValue, output: JsonValue) -> bool:
    """Whether all numbers of both are close, or equal once rounded; integers too."""
    want, have = _numbers(decode(expected)), _numbers(decode(output))
    if len(want) == 1:
        want *= len(have)
    if len(have) == 1:
        have *= len(want)
    if not want or len(want) != len(have):
        return False
    pairs = list(zip(want, have, strict=True))
    close = all(w == h or (math.isfinite(w - h) and abs(w - h) <= _ATOL + _RTOL * abs(w)) for w, h in pairs)
    return close or all(math.isfinite(w) and math.isfinite(h) and round(w, 3) == round(h, 3) for w, h in pairs)


def _numbers(value: Any) -> list[float]:
    if isinstance(value, str):
        return [float(token) for token in value.split()]
    if isinstance(value, list | tuple):
        return [number for item in value for number in _numbers(item)]
    return [float(value)]
