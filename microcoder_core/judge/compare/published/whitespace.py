"""Whitespace normalisation: every run of blanks (Unicode's too) is one."""

from __future__ import annotations

from microcoder_core.values import JsonValue


def equal_but_blanks(expected: JsonValue, output: JsonValue) -> bool:
    """Whether both hold the same words."""
    return isinstance(expected, str) and isinstance(output, str) and expected.split() == output.split()
