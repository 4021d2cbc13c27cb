"""Asserts on a function, as input/expected tests.

Covers: `f(..) == constant` either way round, `f(..) is True / False / None`, `f(..)`, `not f(..)`, `abs(f(..) - constant) < eps`.
Does not cover: loops, random inputs, results that are looked at before they are compared. Such a body keeps its asserts.

Python's `==` equates what a typed comparison tells apart (1, 1.0 and True). The checker is the strictest one under which the reference can
pass: see `docs/data.md`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from microcoder_core.data.literals import NotConstant, constant_value
from microcoder_core.programs import parse
from microcoder_core.records import Checker, TestCase
from microcoder_core.values import encode

REAL = Checker(kind="float", abs=1e-6, rel=1e-9)
"""For results written as real numbers: 1e-6 is what HumanEval's own asserts allow; the relative part is `math.isclose`'s default."""
NUMBER = Checker(kind="float", abs=0.0, rel=0.0)
"""For whole numbers that the reference may return as reals: equal in value, as `==` has it."""
EXACT = Checker(kind="exact")


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertedCall:
    """One assert on the function: its arguments, the result, and the tolerance where the assert states one."""

    arguments: list[Any]
    expected: Any
    tolerance: float | None = None


def asserts_to_tests(body: Sequence[ast.stmt], function: str, reference: str) -> tuple[tuple[TestCase, ...], Checker] | None:
    """The tests that say what the asserts say, with their checker; None where one of the asserts is beyond a plain test.

    Args:
        body: Statements of HumanEval's `check`, or MBPP's asserts.
        function: The name that the asserts call.
        reference: A right program, read (never run) for the kind of number it may return.
    """
    try:
        calls = [_asserted_call(statement, function) for statement in body if not says_nothing(statement)]
        checker = _checker(calls, reference)
        if checker is None:
            return None
        return tuple(TestCase(input=encode(call.arguments), expected=encode(call.expected)) for call in calls), checker
    except (NotConstant, TypeError, RecursionError):  # TypeError: a value that `encode` cannot write
        return None


def says_nothing(statement: ast.stmt) -> bool:
    """Whether a statement asserts nothing: `assert True`, a lone constant or name, `pass`."""
    match statement:
        case ast.Assert(test=ast.Constant(value=value)):
            return bool(value)
        case ast.Pass() | ast.Expr(value=ast.Constant() | ast.Name()):
            return True
    return False


def _asserted_call(statement: ast.stmt, function: str) -> AssertedCall:
    if not isinstance(statement, ast.Assert):
        raise NotConstant(type(statement).__name__)
    match statement.test:
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
            call, expected = (left, right) if _is_call(left, function) else (right, left)
            return AssertedCall(arguments=_arguments(call, function), expected=constant_value(expected))
        case ast.Compare(left=call, ops=[ast.Is()], comparators=[ast.Constant(value=True | False | None as value)]):
            return AssertedCall(arguments=_arguments(call, function), expected=value)
        case ast.Compare(
            left=ast.Call(func=ast.Name(id="abs"), args=[ast.BinOp(left=call, op=ast.Sub(), right=expected)], keywords=[]),
            ops=[ast.Lt() | ast.LtE()],
            comparators=[tolerance],
        ):
            return _close_call(_arguments(call, function), constant_value(expected), constant_value(tolerance))
        case ast.UnaryOp(op=ast.Not(), operand=call):
            return AssertedCall(arguments=_arguments(call, function), expected=False)
        case call:
            return AssertedCall(arguments=_arguments(call, function), expected=True)


def _close_call(arguments: list[Any], expected: Any, tolerance: Any) -> AssertedCall:
    if not _is_number(expected) or not _is_number(tolerance) or not 0 < tolerance < 1:
        raise NotConstant("tolerance")
    return AssertedCall(arguments=arguments, expected=float(expected), tolerance=float(tolerance))


def _is_call(node: ast.expr, function: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == function


def _arguments(node: ast.expr, function: str) -> list[Any]:
    if not isinstance(node, ast.Call) or not _is_call(node, function) or node.keywords:
        raise NotConstant(ast.unparse(node))
    return [constant_value(argument) for argument in node.args]


def _checker(calls: Sequence[AssertedCall], reference: str) -> Checker | None:
    tolerances = {call.tolerance for call in calls} - {None}
    if len(tolerances) > 1:
        return None
    if tolerances:
        return Checker(kind="float", abs=tolerances.pop(), rel=0.0)
    leaves = [leaf for call in calls for leaf in _leaves(call.expected)]
    if any(type(leaf) is float for leaf in leaves):
        return REAL
    if any(type(leaf) is int for leaf in leaves) and _may_return_real(reference):
        return NUMBER
    if any(type(leaf) is bool for leaf in leaves) and _returns_whole_number(reference):
        return None
    return EXACT


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from _leaves(list(value.values()))
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def _is_number(value: object) -> bool:
    return type(value) in (int, float)


def _may_return_real(program: str) -> bool:
    """Whether a program divides, holds a real number, or calls `float` or the math module."""
    tree = parse(program)
    return tree is not None and any(_makes_real(node) for node in ast.walk(tree))


def _makes_real(node: ast.AST) -> bool:
    match node:
        case ast.BinOp(op=ast.Div()) | ast.AugAssign(op=ast.Div()) | ast.Constant(value=float()):
            return True
        case ast.Call(func=ast.Name(id="float" | "sqrt" | "pow")) | ast.Attribute(value=ast.Name(id="math" | "cmath" | "statistics")):
            return True
    return False


def _returns_whole_number(program: str) -> bool:
    """Whether a program has a `return 0` or the like."""
    tree = parse(program)
    if tree is None:
        return False
    returned = (node.value for node in ast.walk(tree) if isinstance(node, ast.Return))
    return any(isinstance(value, ast.Constant) and type(value.value) is int for value in returned)
