"""Yes or no, in any case, where every expected token is one of the two."""

from __future__ import annotations

from microcoder_core.judge.compare import text

_WORDS = (b"YES", b"NO")


def is_yesno(expected: str) -> bool:
    """Whether `expected` holds YES and NO (in any case) only."""
    words = text.tokens(expected)
    return bool(words) and all(word.upper() in _WORDS for word in words)


def same_answers(expected: str, output: str) -> bool:
    """Whether both hold the same yes and no in the same order, case aside."""
    return is_yesno(expected) and [word.upper() for word in text.tokens(expected)] == [word.upper() for word in text.tokens(output)]
