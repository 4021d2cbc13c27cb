"""Format `mbpp`: Google's MBPP (.jsonl, .gz and .zst too).

Two forms: as released (task_id, text, code, test_list, test_setup_code), and mxeval's in HumanEval's form.

The statement is the task's text alone: mxeval's prompt repeats the graded asserts as examples, and a program could answer from those.
`challenge_test_list` is left alone, as MBPP's own evaluation does.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from microcoder_core.data.asserts import asserts_to_tests
from microcoder_core.data.importers.check_function import (
    CheckRow,
    RecordRefused,
    SourceRow,
    asserts_checker,
    check_body,
    import_rows,
    parse_part,
    read_record,
)
from microcoder_core.programs import parse
from microcoder_core.records import Checker, Dropped, Problem, TestCase

URL = "https://github.com/google-research/google-research/tree/master/mbpp"


class MxevalRow(CheckRow):
    """A row of mxeval's MBPP."""

    description: str
    language: str = "python"


class MbppRow(SourceRow):
    """A row of MBPP as released."""

    task_id: int | str
    text: str
    code: str
    test_list: tuple[str, ...]
    test_setup_code: str = ""


def import_mbpp(source: str) -> Iterator[Problem | Dropped]:
    """One Problem or Dropped a row; the form is told by the row's fields."""
    return import_rows(source, _problem_of_row)


def _problem_of_row(row: Mapping[str, Any]) -> Problem:
    if "test_list" in row:
        return mbpp_problem(read_record(MbppRow, row))
    return mxeval_problem(read_record(MxevalRow, row))


def mxeval_problem(row: MxevalRow) -> Problem:
    """The Problem in a row of mxeval's form."""
    if row.language != "python":
        raise RecordRefused("not_python", f"language is {row.language}")
    test_module = parse_part(row.test, "test")
    prompt = parse(row.prompt) or ast.Module(body=[], type_ignores=[])  # one prompt is indented badly; its text and tests are whole
    reference = row.prompt + row.canonical_solution
    converted = asserts_to_tests(check_body(test_module), "candidate", reference)
    tests, checker = converted or ((), asserts_checker(test_module, prompt, row.entry_point))
    return _problem(row.task_id, row.description, row.entry_point, reference, tests, checker)


def mbpp_problem(row: MbppRow) -> Problem:
    """The Problem in a row of MBPP as released."""
    code = row.code.replace("\r\n", "\n")
    asserts = parse_part("\n".join(row.test_list), "tests").body
    if not asserts:
        raise RecordRefused("no_tests", "test_list is empty")
    entry_point = _function_under_test(parse_part(code, "code"), asserts[0])
    setup = row.test_setup_code.replace("\r\n", "\n").strip()
    converted = None if setup else asserts_to_tests(asserts, entry_point, code)
    tests, checker = converted or ((), _kept_asserts(entry_point, setup, asserts))
    task_id = f"MBPP/{row.task_id}" if isinstance(row.task_id, int) else row.task_id
    return _problem(task_id, row.text, entry_point, code, tests, checker)


def _problem(task_id: str, text: str, entry_point: str, reference: str, tests: tuple[TestCase, ...], checker: Checker) -> Problem:
    return Problem(
        problem_id=task_id,
        source="MBPP",
        url=URL,
        date="2021-08",
        statement=text.replace("\r\n", "\n").strip(),
        form="function",
        entry_point=entry_point,
        starter_code=_signature(reference, entry_point),
        tests=tests,
        checker=checker,
        reference_solutions=(reference,),
        licence="CC-BY-4.0",
    )


def _function_under_test(code: ast.Module, first_assert: ast.stmt) -> str:
    """The function of the program that the first assert calls, the outermost one."""
    defined = {node.name for node in code.body if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(first_assert):  # breadth first: an outer call comes before the calls in its arguments
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in defined:
            return node.func.id
    raise RecordRefused("no_entry_function", "the first assert calls no function of the code")


def _kept_asserts(entry_point: str, setup: str, asserts: list[ast.stmt]) -> Checker:
    lines = [f"{entry_point} = candidate", *([setup] if setup else []), *(ast.unparse(statement) for statement in asserts)]
    return Checker(kind="asserts", code="def check(candidate):\n" + textwrap.indent("\n".join(lines), "    ") + "\n")


def _signature(reference: str, entry_point: str) -> str | None:
    """The line that begins the function, or None where the reference does not parse."""
    tree = parse(reference)
    for node in tree.body if tree else ():
        if isinstance(node, ast.FunctionDef) and node.name == entry_point:
            return f"def {node.name}({ast.unparse(node.args)}):\n"
    return None
