"""Numbers and foreign text as shown to a person."""

from __future__ import annotations

import math
import re
from typing import Any

NOT_RECORDED = "not recorded"
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff]")


def visible(text: str) -> str:
    r"""`text` with what a page would hide (control characters, direction marks, lone surrogates) written as `\x1b` or `\u202e`."""
    return _HIDDEN.sub(lambda found: _escaped(ord(found[0])), text.replace("\r\n", "\n"))


def number(value: float | None, digits: int = 3) -> str:
    """`value` rounded to `digits` decimals, or that it was not recorded (missing, NaN or infinite)."""
    if value is None or not math.isfinite(value):
        return NOT_RECORDED
    return _minus(f"{value:.{digits}f}")


def signed(value: float | None, digits: int = 3) -> str:
    """A difference, with its sign; empty where there is none."""
    if value is None or not math.isfinite(value):
        return ""
    text = f"{value:+.{digits}f}"
    return _minus(text if float(text) else text[1:])


def compact(value: float | None) -> str:
    """`value` to four significant digits, for numbers of any size."""
    if value is None or not math.isfinite(value):
        return NOT_RECORDED
    return _minus(f"{value:.4g}")


def degrees(temperature: float) -> str:
    """A sampling temperature: `1.0`, `1.25`."""
    return f"{temperature:.1f}" if round(temperature, 1) == temperature else f"{temperature:g}"


def duration(seconds: float) -> str:
    """Seconds as a person says them: `4.2 s`, `3 min 5 s`, `2 h 10 min`."""
    if not math.isfinite(seconds):
        return NOT_RECORDED
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def words(name: str) -> str:
    """A snake_case name as words."""
    return name.replace("_", " ")


def shown(value: Any) -> Any:
    """What a template prints for `value`: foreign text made visible; the page's own markup as it is."""
    return visible(value) if type(value) is str else value


def _escaped(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _minus(text: str) -> str:
    return text.replace("-", "\u2212")
