"""Direct equality, as Python has it: True is 1, and 1.0 is 1."""

from __future__ import annotations

from microcoder_core.values import JsonValue, decode


def equal(expected: JsonValue, output: JsonValue) -> bool:
    """Whether Python finds both equal."""
    return bool(decode(expected) == decode(output))
