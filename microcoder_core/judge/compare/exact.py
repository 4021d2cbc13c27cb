"""Exact: lines of text without blanks at their ends; function results of one structure and the same types."""

from __future__ import annotations

from microcoder_core.judge.compare.canonical import canonical
from microcoder_core.judge.compare.text import lines
from microcoder_core.values import JsonValue


def same_lines(expected: str, output: str) -> bool:
    """Whether both hold the same lines; blanks that lead a line count (drawings), those that end it do not."""
    return lines(expected) == lines(output)


def same_value(expected: JsonValue, output: JsonValue) -> bool:
    """Whether JSON would carry both alike: bool, int and float differ, tuple is list, keys of dicts are text."""
    return canonical(expected) == canonical(output)
