"""The styles in which one composition of steps is written as a Python function `f(xs)`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from microcoder_core.data.drills.steps import Code, expression

HEAD = "def f(xs):\n"
_INDENT = "    "


def nested(codes: Sequence[Code]) -> str:
    """One expression; a filter and the map after it share a comprehension."""
    return HEAD + f"{_INDENT}return {_nest(codes, 'xs')}\n"


def stepwise(codes: Sequence[Code]) -> str:
    """One line a step."""
    lines = [f"{_INDENT}xs = {expression(code, 'xs')}\n" for code in codes[:-1]]
    return HEAD + "".join(lines) + f"{_INDENT}return {expression(codes[-1], 'xs')}\n"


def loop(codes: Sequence[Code]) -> str:
    """A for loop for the leading filter and map, one expression for the rest; `stepwise` where neither leads."""
    rest = list(codes)
    condition = rest.pop(0).text if rest[0].kind == "filter" else None
    element = rest.pop(0).text if rest and rest[0].kind == "map" else "x"
    if condition is None and element == "x":
        return stepwise(codes)
    append = f"ys.append({element})\n"
    body = f"{_INDENT * 2}{append}" if condition is None else f"{_INDENT * 2}if {condition}:\n{_INDENT * 3}{append}"
    return f"{HEAD}{_INDENT}ys = []\n{_INDENT}for x in xs:\n{body}{_INDENT}return {_nest(rest, 'ys')}\n"


STYLES: tuple[Callable[[Sequence[Code]], str], ...] = (nested, stepwise, loop)


def _nest(codes: Sequence[Code], value: str) -> str:
    place = 0
    while place < len(codes):
        code = codes[place]
        if code.kind == "filter" and place + 1 < len(codes) and codes[place + 1].kind == "map":
            value = f"[{codes[place + 1].text} for x in {value} if {code.text}]"
            place += 2
        else:
            value = expression(code, value)
            place += 1
    return value
