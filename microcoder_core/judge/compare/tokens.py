"""Tokens: the same words in the same order, whatever the blanks between them."""

from __future__ import annotations

from microcoder_core.judge.compare import text


def same_tokens(expected: str, output: str) -> bool:
    """Whether both hold the same tokens, split at ASCII blanks. Blanks may be more or fewer, never absent: "ab" is not "a b"."""
    return text.tokens(expected) == text.tokens(output)
