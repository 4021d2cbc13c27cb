"""Conversion between list, tuple, string and set, and between text and the value that it spells."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

from microcoder_core.values import JsonValue, decode


def equal_when_converted(expected: JsonValue, output: JsonValue) -> bool:
    """Whether both are equal as literals, as lists, as sets or as text."""
    want, have = decode(expected), decode(output)
    if _literal(want) == _literal(have) or str(want).strip() == str(have).strip():
        return True
    want, have = _literal(want), _literal(have)
    collections = (list, tuple, set, frozenset)
    if isinstance(want, collections) and isinstance(have, collections):
        return _as_lists(want) == _as_lists(have) or ((isinstance(want, set) or isinstance(have, set)) and set(want) == set(have))
    return False


_LITERAL_LIMIT = 100_000  # longer text is read as text: parsing it may take the grader down


def _literal(value: Any) -> Any:
    if isinstance(value, str) and len(value) <= _LITERAL_LIMIT:
        try:
            return ast.literal_eval(value.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return value
    return value


def _as_lists(items: Iterable[Any]) -> list[Any]:
    return [_as_lists(item) if isinstance(item, list | tuple | set | frozenset) else item for item in items]
