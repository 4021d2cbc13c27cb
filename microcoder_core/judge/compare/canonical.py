"""Function results as canonical values: equal exactly where JSON would carry the same.

| Python                 | canonical                                                     |
|------------------------|---------------------------------------------------------------|
| bool, int, float, str  | the type's name with the value: True, 1 and 1.0 differ        |
| list, tuple            | one kind, in order                                            |
| dict                   | keys as JSON spells them: 3 is "3", True is "true"            |
| set, frozenset         | one kind, without order; never equal to a list                |
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from microcoder_core.values import JsonValue

Canonical = tuple[Hashable, ...]
_CHUNK_DIGITS = 4000
_LONG = 10**_CHUNK_DIGITS


def canonical(value: JsonValue) -> Canonical:
    """The canonical form of tagged JSON.

    Raises:
        ValueError: A tag whose content does not fit (a forged result).
        RecursionError: Nested too deep.
    """
    kind = type(value)
    if kind is list:
        return ("sequence", *map(canonical, value))
    if kind is dict:
        tag, content = next(iter(value.items())) if len(value) == 1 else ("", None)
        if tag.startswith("$"):
            return _tagged(tag, content)
        return _mapping([(key, item) for key, item in value.items()])
    if kind is int:
        return ("int", value if -_LONG < value < _LONG else digits(value))
    if kind in (bool, float, str) or value is None:
        return (kind.__name__, value)
    if isinstance(value, str):  # a LongInteger
        return ("int", str(value))
    raise ValueError(f"{kind.__name__} is not JSON")


def _tagged(tag: str, content: Any) -> Canonical:
    if tag == "$tuple" and isinstance(content, list):
        return ("sequence", *map(canonical, content))
    if tag in ("$set", "$frozenset") and isinstance(content, list):
        return ("set", frozenset(map(canonical, content)))
    if tag == "$map" and isinstance(content, list):
        return _mapping([(_key(key), item) for key, item in content])
    if tag == "$float" and content in ("inf", "-inf", "nan"):
        return ("float", content)
    if tag == "$bytes" and isinstance(content, str):
        return ("bytes", content)
    if tag == "$complex" and isinstance(content, list):
        return ("complex", *map(canonical, content))
    raise ValueError(f"tag {tag} with content that does not fit")


def _mapping(items: list[tuple[Hashable, Any]]) -> Canonical:
    return ("mapping", frozenset((key, canonical(item)) for key, item in items))


def _key(key: JsonValue) -> Hashable:
    """A key as JSON would spell it; one that JSON has no spelling for keeps its canonical form."""
    if key is None or isinstance(key, bool):
        return {None: "null", True: "true", False: "false"}[key]
    if isinstance(key, int | float):
        return repr(key)
    return key if type(key) is str else canonical(key)


def digits(number: int) -> str:
    """The decimal digits of an integer of any length (`str` refuses beyond 4300 digits)."""
    sign, left, parts = "-" if number < 0 else "", abs(number), []
    while left:
        left, low = divmod(left, 10**_CHUNK_DIGITS)
        parts.append(str(low).zfill(_CHUNK_DIGITS))
    return sign + ("".join(reversed(parts)).lstrip("0") or "0")
