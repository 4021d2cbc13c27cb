"""Addresses of servers as they may be shown."""

from __future__ import annotations

import re

_CREDENTIALS = re.compile(r"(?<=//)[^/\s]*@")


def without_password(text: str) -> str:
    """`text` without the user and password of the addresses in it."""
    return _CREDENTIALS.sub("", text)
