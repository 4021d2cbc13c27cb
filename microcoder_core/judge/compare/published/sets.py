"""Set comparison: order and duplicates do not count."""

from __future__ import annotations

from typing import Any

from microcoder_core.values import JsonValue, decode


def equal_as_sets(expected: JsonValue, output: JsonValue) -> bool:
    """Whether both hold the same lines, the same words of the same lines, or the same items."""
    if isinstance(expected, str) and isinstance(output, str):
        return _line_sets(expected) == _line_sets(output)
    want, have = decode(expected), decode(output)
    collections = (list, tuple, set, frozenset)
    return isinstance(want, collections) and isinstance(have, collections) and _members(want) == _members(have)


def _line_sets(text: str) -> frozenset[frozenset[str]]:
    return frozenset(frozenset(line.split()) for line in text.splitlines() if line.strip())


def _members(items: Any) -> frozenset[Any]:
    return frozenset(_members(item) if isinstance(item, list | tuple | set | frozenset) else item for item in items)
