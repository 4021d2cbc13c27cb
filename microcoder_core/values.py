"""Python values as JSON, with tags for what JSON lacks. Standard library only: the sandboxed child uses it too.

| value                     | JSON                                |
|---------------------------|-------------------------------------|
| tuple                     | `{"$tuple": [..]}`                  |
| set                       | `{"$set": [..]}`                    |
| frozenset                 | `{"$frozenset": [..]}`              |
| bytes                     | `{"$bytes": "<base64>"}`            |
| complex                   | `{"$complex": [real, imag]}`        |
| inf, -inf, nan            | `{"$float": "inf" / "-inf" / "nan"}`|
| dict with non-string keys | `{"$map": [[key, value], ..]}`      |
| subclass of a plain type  | as the plain type, what it holds    |

A dict that would read as a tag (one key that starts with `$`) is written as `$map` too, so `decode(encode(x)) == x`.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from typing import Any, TypeAlias

JsonValue: TypeAlias = Any
"""A value that `json.loads` can return. (Spelled `Any`: pydantic's recursive type costs 20x on long tests.)"""

MAX_DEPTH = 200
_PLAIN: dict[type, Callable[[Any], object]] = {
    dict: lambda value: dict(dict.items(value)),
    list: lambda value: [*list.__iter__(value)],
    tuple: lambda value: (*tuple.__iter__(value),),
    str: str.__str__,
    int: int.__int__,
    float: float.__float__,
    set: lambda value: {*set.__iter__(value)},
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),
}
"""How what a subclass holds is read, whatever it overrides."""
_TAGS = frozenset({"$tuple", "$set", "$frozenset", "$bytes", "$complex", "$float", "$map"})


def encode(value: object, _depth: int = 0) -> JsonValue:
    """`value` as JSON. A subclass (Counter, a named tuple) is read by its base's own methods: it cannot pose as what it does not hold.

    Raises:
        TypeError: A value outside the table, or nested deeper than `MAX_DEPTH`.
    """
    if _depth > MAX_DEPTH:
        raise TypeError(f"nested deeper than {MAX_DEPTH}")
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        return value if math.isfinite(value) else {"$float": str(value)}  # type: ignore[arg-type]
    if kind is list:
        return [encode(item, _depth + 1) for item in value]  # type: ignore[attr-defined]
    if kind is tuple:
        return {"$tuple": [encode(item, _depth + 1) for item in value]}  # type: ignore[attr-defined]
    if kind in (set, frozenset):  # sorted: the order of a set's items differs from process to process
        items = [encode(item, _depth + 1) for item in value]  # type: ignore[attr-defined]
        return {f"${kind.__name__}": sorted(items, key=json.dumps)}
    if kind is dict:
        return _encode_dict(value, _depth)  # type: ignore[arg-type]
    if kind is bytes:
        return {"$bytes": base64.b64encode(value).decode("ascii")}  # type: ignore[arg-type]
    if kind is complex:
        return {"$complex": [encode(value.real), encode(value.imag)]}  # type: ignore[attr-defined]
    for base, plain in _PLAIN.items():
        if issubclass(kind, base):
            return encode(plain(value), _depth)
    raise TypeError(f"cannot be written as JSON: {kind.__name__}")


def _encode_dict(value: dict[Any, Any], depth: int) -> JsonValue:
    plain = all(type(key) is str for key in value) and not (len(value) == 1 and next(iter(value)).startswith("$"))
    if plain:
        return {key: encode(item, depth + 1) for key, item in value.items()}
    return {"$map": [[encode(key, depth + 1), encode(item, depth + 1)] for key, item in value.items()]}


def decode(value: JsonValue) -> Any:
    """The Python value that `encode` wrote.

    Raises:
        ValueError: An unknown tag, or a tag whose content does not fit.
    """
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        tag, content = next(iter(value.items()))
        if tag.startswith("$"):
            return _decode_tag(tag, content)
    return {key: decode(item) for key, item in value.items()}


def _decode_tag(tag: str, content: JsonValue) -> Any:
    if tag in _TAGS - {"$bytes", "$float"} and not isinstance(content, list):
        raise ValueError(f"tag {tag} must hold a list, got {type(content).__name__}")
    try:
        if tag == "$tuple":
            return tuple(decode(item) for item in content)
        if tag == "$set":
            return {decode(item) for item in content}
        if tag == "$frozenset":
            return frozenset(decode(item) for item in content)
        if tag == "$bytes":
            return base64.b64decode(content, validate=True)
        if tag == "$complex":
            real, imag = (float(decode(part)) for part in content)
            return complex(real, imag)
        if tag == "$float" and content in ("inf", "-inf", "nan"):
            return float(content)
        if tag == "$map":
            return {decode(key): decode(item) for key, item in content}
    except (TypeError, ValueError) as error:
        raise ValueError(f"tag {tag} has content that does not fit: {error}") from None
    known = ", ".join(sorted(_TAGS))
    raise ValueError(f"unknown tag {tag} or content {str(content)[:40]!r}; the tags are {known}")


def check_tagged(value: JsonValue) -> None:
    """Raises ValueError unless `decode(value)` works and `value` is JSON (finite numbers, text keys), nested `MAX_DEPTH` deep at most."""
    _check_json(value, 0)
    decode(value)


def _check_json(value: JsonValue, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is not JSON; write it as {{'$float': '{value}'}}")
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise ValueError(f"key {key!r} is not text; write the dict as {{'$map': [[key, value], ...]}}")
            _check_json(item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            _check_json(item, depth + 1)
    elif not (value is None or isinstance(value, str | int | float)):
        raise ValueError(f"{type(value).__name__} is not JSON; write it with the tags of microcoder_core.values")
