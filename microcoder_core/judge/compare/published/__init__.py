"""The published chain of MicroCoder's evaluator, unguarded: kept so that its study can be run again, not to be trained on.

Source: MicroCoder-Insights, code evaluator (direct equality; conversion between list, tuple, string and set; numpy.allclose and
rounding; line splitting; whitespace; sets; a method that fails is passed over). Upstream published no code: this is a reading.
Differs from source: 1. no numpy: `closeness` has allclose's formula and its broadcasting of a single number.
"""

from __future__ import annotations

from collections.abc import Callable

from microcoder_core.judge.compare.published.closeness import close_or_rounded
from microcoder_core.judge.compare.published.conversion import equal_when_converted
from microcoder_core.judge.compare.published.equality import equal
from microcoder_core.judge.compare.published.line_splitting import equal_by_lines
from microcoder_core.judge.compare.published.sets import equal_as_sets
from microcoder_core.judge.compare.published.whitespace import equal_but_blanks

METHODS: tuple[tuple[str, Callable[[object, object], bool]], ...] = (
    ("published_equality", equal),
    ("published_conversion", equal_when_converted),
    ("published_closeness", close_or_rounded),
    ("published_line_splitting", equal_by_lines),
    ("published_whitespace", equal_but_blanks),
    ("published_sets", equal_as_sets),
)
"""Name and method, in the published order."""
