"""Lines: the same tokens on the same lines (grids, one answer a line)."""

from __future__ import annotations

from microcoder_core.judge.compare import text


def same_token_lines(expected: str, output: str) -> bool:
    """Whether both have as many lines (blank ones at the end aside) and the same tokens on each."""
    return [row.split() for row in text.lines(expected)] == [row.split() for row in text.lines(output)]
