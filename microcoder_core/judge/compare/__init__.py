"""Compare methods, one file each, and which of them may accept.

A method takes the expected and the written answer and says whether it accepts; one that raises has not accepted.

| checker            | methods of chain `guarded`, in order                                  |
|--------------------|-----------------------------------------------------------------------|
| `tokens`           | tokens                                                                |
| `lines`            | lines                                                                 |
| `exact`            | exact                                                                 |
| `float`            | tokens (or exact), float                                              |
| `yesno`            | tokens, yesno                                                         |
| `unordered_tokens` | tokens, unordered_tokens                                              |
| `unordered_lines`  | lines, unordered_lines                                                |
| `unordered`        | exact, unordered                                                      |
| `auto`             | decided once a problem, from all its stored outputs: yesno, float (on real numbers only) or tokens / exact |

Chain `strict` is exact whatever the checker; chain `microcoder` is the published one (`published`), whatever the checker. Kinds
`program` and `asserts` run code and are not compared here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from microcoder_core.judge.compare import exact, lines, numbers, tokens, unordered, yesno
from microcoder_core.judge.compare.published import METHODS as PUBLISHED_METHODS
from microcoder_core.judge.config import Chain
from microcoder_core.records import Checker, Form
from microcoder_core.values import JsonValue

Method = Callable[[JsonValue, JsonValue], bool]
NamedMethod = tuple[str, Method]

_TOKENS: NamedMethod = ("tokens", tokens.same_tokens)
_LINES: NamedMethod = ("lines", lines.same_token_lines)
_EXACT_TEXT: NamedMethod = ("exact", exact.same_lines)
_EXACT_VALUE: NamedMethod = ("exact", exact.same_value)


def methods(chain: Chain, checker: Checker, form: Form, expected: Sequence[JsonValue]) -> tuple[NamedMethod, ...]:
    """The methods that may accept an answer to a problem, in order.

    Args:
        expected: All the stored outputs of the problem, from which `auto` is decided.
    """
    exactly = _EXACT_TEXT if form == "stdin" else _EXACT_VALUE
    if chain == "strict":
        return (exactly,)
    if chain == "microcoder":
        return PUBLISHED_METHODS
    return _text_methods(checker, expected) if form == "stdin" else _value_methods(checker, expected)


def accepting_method(candidates: Sequence[NamedMethod], expected: JsonValue, output: JsonValue) -> str | None:
    """The name of the first method that accepts, or None."""
    for name, accepts in candidates:
        try:
            if accepts(expected, output):
                return name
        except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
            continue  # an answer that the method cannot read is not accepted by it
    return None


def _text_methods(checker: Checker, expected: Sequence[str]) -> tuple[NamedMethod, ...]:
    kind = checker.kind
    if kind == "auto":
        kind = "yesno" if all(map(yesno.is_yesno, expected)) else "float" if any(map(numbers.has_real, expected)) else "tokens"
    more: dict[str, tuple[NamedMethod, ...]] = {
        "lines": (_LINES,),
        "exact": (_EXACT_TEXT,),
        "float": (_TOKENS, ("float", _close(numbers.close_tokens, checker))),
        "yesno": (_TOKENS, ("yesno", yesno.same_answers)),
        "unordered_tokens": (_TOKENS, ("unordered_tokens", unordered.same_token_bag)),
        "unordered_lines": (_LINES, ("unordered_lines", unordered.same_line_bag)),
    }
    return more.get(kind, (_TOKENS,))


def _value_methods(checker: Checker, expected: Sequence[JsonValue]) -> tuple[NamedMethod, ...]:
    kind = checker.kind
    if kind == "auto":
        kind = "float" if any(map(numbers.has_real_value, expected)) else "exact"
    if kind == "float":
        return (_EXACT_VALUE, ("float", _close(numbers.close_values, checker)))
    if kind == "yesno":
        return (_EXACT_VALUE, ("yesno", yesno.same_answers))
    if kind == "unordered":
        return (_EXACT_VALUE, ("unordered", unordered.same_item_bag))
    return (_EXACT_VALUE,)


def _close(method: Callable[..., bool], checker: Checker) -> Method:
    return partial(
        method,
        abs_tolerance=numbers.DEFAULT_TOLERANCE if checker.abs is None else checker.abs,
        rel_tolerance=numbers.DEFAULT_TOLERANCE if checker.rel is None else checker.rel,
        reals_only=checker.kind == "auto",
    )
