"""Multi-line splitting: line by line, blanks at both ends off, blank lines left out."""

from __future__ import annotations

from microcoder_core.values import JsonValue


def equal_by_lines(expected: JsonValue, output: JsonValue) -> bool:
    """Whether the lines that hold anything are equal."""
    return isinstance(expected, str) and isinstance(output, str) and _lines(expected) == _lines(output)


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]
