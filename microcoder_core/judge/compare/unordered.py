"""Any order, where the problem declares it: multisets, so that duplicates count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from microcoder_core.judge.compare import text
from microcoder_core.judge.compare.canonical import Canonical, canonical
from microcoder_core.values import JsonValue


def same_token_bag(expected: str, output: str) -> bool:
    """Whether both hold the same tokens, each as often."""
    return Counter(text.tokens(expected)) == Counter(text.tokens(output))


def same_line_bag(expected: str, output: str) -> bool:
    """Whether both hold the same lines of tokens, each as often."""
    return _line_bag(expected) == _line_bag(output)


def same_item_bag(expected: JsonValue, output: JsonValue) -> bool:
    """Whether both hold the same items, each as often; the order inside an item counts. A set may stand for a list."""
    wanted, got = canonical(expected), canonical(output)
    return wanted == got or (_is_collection(wanted) and _is_collection(got) and _items(wanted) == _items(got))


def _line_bag(written: str) -> Counter[tuple[bytes, ...]]:
    return Counter(tuple(row.split()) for row in text.lines(written))


def _is_collection(value: Canonical) -> bool:
    return value[0] in ("sequence", "set")


def _items(value: Canonical) -> Counter[Hashable]:
    if value[0] == "set":
        members = value[1]
        assert isinstance(members, frozenset)
        return Counter(members)
    return Counter(value[1:])
