"""The words of a statement, for counting and comparing."""

from __future__ import annotations

import html
import re

_HTML = re.compile(r"<(html|body|head|div|p|pre|br|h[1-6]|ul|li)\b[^>]*>", re.IGNORECASE)
_HIDDEN = re.compile(r"<(script|style|head)\b.*?</\1\s*>|<!--.*?-->", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"</?[a-z][^>]*>", re.IGNORECASE)
_WORD = re.compile(r"[^\W_]+|[-+*/%<>=!]+")


def plain_text(statement: str) -> str:
    """`statement` without HTML markup, scripts and styles; text that is no HTML as it stands."""
    if not _HTML.search(statement):
        return statement
    return html.unescape(_TAG.sub(" ", _HIDDEN.sub(" ", statement)))


def words(statement: str) -> list[str]:
    """Lower-cased words, numbers and operators: `keep x > 3` and `keep x < 3` must not read alike."""
    return _WORD.findall(plain_text(statement).lower())


def normalised_statement(statement: str) -> str:
    """`statement` without markup, case and layout."""
    return " ".join(plain_text(statement).casefold().split())
