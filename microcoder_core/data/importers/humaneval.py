"""Format `humaneval`: OpenAI's HumanEval.jsonl (.gz), rows of task_id, prompt, entry_point, canonical_solution, test.

The prompt is the head of a Python function. Its docstring becomes the statement, the rest the starter code.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from microcoder_core.data.asserts import tests_of_asserts
from microcoder_core.data.importers.check_function import (
    CheckRow,
    RecordRefused,
    asserts_checker,
    check_body,
    entry_function,
    parse_part,
    read_record,
)
from microcoder_core.records import Dropped, Problem, first_complaint
from microcoder_core.storage.rows import read_rows

URL = "https://github.com/openai/human-eval"


class _Text(NamedTuple):
    value: str
    lineno: int


def import_humaneval(source: str) -> Iterator[Problem | Dropped]:
    """One Problem or Dropped a row."""
    for number, row in read_rows(Path(source)):
        record_id = str(row.get("task_id") or f"line {number}")
        try:
            yield humaneval_problem(read_record(CheckRow, row))
        except RecordRefused as refusal:
            yield Dropped(record_id=record_id, reason=refusal.reason, detail=refusal.detail)
        except ValidationError as error:
            yield Dropped(record_id=record_id, reason="not_a_problem", detail=first_complaint(error))


def humaneval_problem(row: CheckRow) -> Problem:
    """The Problem in a row of HumanEval's form.

    Raises:
        RecordRefused: The row holds no problem that can be posed and checked.
    """
    prompt = parse_part(row.prompt, "prompt")
    entry = entry_function(prompt, row.entry_point)
    docstring = _docstring(entry)
    test_module = parse_part(row.test, "test")
    reference = row.prompt + row.canonical_solution
    converted = tests_of_asserts(check_body(test_module), "candidate", reference)
    tests, checker = converted or ((), asserts_checker(test_module, prompt, row.entry_point))
    return Problem(
        problem_id=row.task_id,
        source="HumanEval",
        url=URL,
        date="2021-07",
        statement=inspect.cleandoc(docstring.value),
        form="function",
        entry_point=row.entry_point,
        starter_code=_before_line(row.prompt, docstring.lineno),
        tests=tests,
        checker=checker,
        reference_solutions=(reference,),
        licence="MIT",
    )


def _docstring(entry: ast.FunctionDef) -> _Text:
    """The first text that stands by itself in a function (HumanEval/115 has an import above it)."""
    for statement in entry.body:
        match statement:
            case ast.Expr(value=ast.Constant(value=str(text), lineno=line)) if text.strip():
                return _Text(text, line)
    raise RecordRefused("no_statement", "the function in the prompt has no docstring")


def _before_line(prompt: str, line: int) -> str:
    """The prompt up to a line, as it is written: imports, helpers and signature."""
    return "\n".join(prompt.split("\n")[: line - 1]).strip("\n") + "\n"
