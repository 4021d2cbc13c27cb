"""Format `humaneval`: OpenAI's HumanEval.jsonl (.gz), rows of task_id, prompt, entry_point, canonical_solution, test.

The prompt is the head of a Python function. Its docstring becomes the statement, the rest the starter code.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from typing import NamedTuple

from microcoder_core.data.asserts import asserts_to_tests
from microcoder_core.data.importers.check_function import (
    CheckRow,
    RecordRefused,
    asserts_checker,
    check_body,
    entry_function,
    import_rows,
    parse_part,
    read_record,
)
from microcoder_core.records import Dropped, Problem

URL = "https://github.com/openai/human-eval"


_QUOTES = re.compile(r"""^[rRuU]?("{3}|'{3}|"|')(.*)\1$""", re.DOTALL)


class _Text(NamedTuple):
    source: str
    """Between the quotes, as it is written: an escape such as `\\n` in an example stays one."""
    line: int


def import_humaneval(source: str) -> Iterator[Problem | Dropped]:
    """One Problem or Dropped a row."""
    return import_rows(source, lambda row: humaneval_problem(read_record(CheckRow, row)))


def humaneval_problem(row: CheckRow) -> Problem:
    """The Problem in a row of HumanEval's form.

    Raises:
        RecordRefused: The row holds no problem that can be posed and checked.
    """
    prompt = parse_part(row.prompt, "prompt")
    entry = entry_function(prompt, row.entry_point)
    docstring = _docstring(row.prompt, entry)
    test_module = parse_part(row.test, "test")
    reference = row.prompt + row.canonical_solution
    converted = asserts_to_tests(check_body(test_module), "candidate", reference)
    tests, checker = converted or ((), asserts_checker(test_module, prompt, row.entry_point))
    return Problem(
        problem_id=row.task_id,
        source="HumanEval",
        url=URL,
        date="2021-07",
        statement=inspect.cleandoc(docstring.source),
        form="function",
        entry_point=row.entry_point,
        starter_code=_before_line(row.prompt, docstring.line),
        tests=tests,
        checker=checker,
        reference_solutions=(reference,),
        licence="MIT",
    )


def _docstring(prompt: str, entry: ast.FunctionDef) -> _Text:
    """The first text that stands by itself in a function (HumanEval/115 has an import above it)."""
    for statement in entry.body:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            quoted = _QUOTES.match(ast.get_source_segment(prompt, statement.value) or "")
            if quoted and quoted[2].strip():
                return _Text(quoted[2], statement.lineno)
    raise RecordRefused("no_statement", "the function in the prompt has no docstring")


def _before_line(prompt: str, line: int) -> str:
    """The prompt up to a line, as it is written: imports, helpers and signature."""
    return "\n".join(prompt.split("\n")[: line - 1]).strip("\n") + "\n"
