"""The value of a constant expression in a test's source, computed without running any of it.

Covers: literals of every kind that the tests of a problem can carry, containers of them, small sums on them (`3 * 19`, `'a' + 'b'`).
Does not cover: names, calls (but `set()`), comprehensions, and sums that would grow large.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

_MAX_ITEMS = 10_000
_MAX_EXPONENT = 64
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}


class NotConstant(ValueError):
    """The expression is not constant, or its value would be large."""


def constant_value(node: ast.expr) -> Any:
    """The value of a constant expression.

    Raises:
        NotConstant: It needs more than its own text to be computed.
    """
    try:
        return _value(node)
    except (TypeError, ArithmeticError, RecursionError) as error:  # an unhashable set item, 1 / 0
        raise NotConstant(str(error)) from None


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=value) if value is not ...:
            return value
        case ast.Tuple(elts=items):
            return tuple(_value(item) for item in items)
        case ast.List(elts=items):
            return [_value(item) for item in items]
        case ast.Set(elts=items):
            return {_value(item) for item in items}
        case ast.Dict(keys=keys, values=values) if all(keys):
            return {_value(key): _value(value) for key, value in zip(keys, values, strict=True) if key is not None}
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return +_value(operand)
        case ast.BinOp(left=left, op=op, right=right):
            return _sum(_value(left), op, _value(right))
        case ast.Call(func=ast.Name(id="set"), args=[], keywords=[]):
            return set()
    raise NotConstant(ast.unparse(node))


def _sum(left: Any, op: ast.operator, right: Any) -> Any:
    compute = _OPERATORS.get(type(op))
    if compute is None or not all(isinstance(side, int | float | complex | str | list | tuple) for side in (left, right)):
        raise NotConstant(type(op).__name__)
    if isinstance(op, ast.Mod) and isinstance(left, str):
        raise NotConstant("text formatting")
    if isinstance(op, ast.Pow) and (not isinstance(right, int | float) or abs(right) > _MAX_EXPONENT):
        raise NotConstant("large power")
    if isinstance(op, ast.Mult):
        for sequence, count in ((left, right), (right, left)):
            if isinstance(sequence, str | list | tuple) and isinstance(count, int) and len(sequence) * count > _MAX_ITEMS:
                raise NotConstant("large repetition")
    return compute(left, right)
