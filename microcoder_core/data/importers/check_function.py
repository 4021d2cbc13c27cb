"""Rows in HumanEval's form: a prompt that begins a function, and a test that defines `check(candidate)`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from microcoder_core.data.asserts import says_nothing
from microcoder_core.programs import parse
from microcoder_core.records import Checker, Dropped, Problem, first_complaint
from microcoder_core.storage.rows import read_rows


class RecordRefused(Exception):
    """A record that an importer cannot take."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class SourceRow(BaseModel):
    """Base of what importers read of a row; fields beyond are left alone."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class CheckRow(SourceRow):
    """A row of HumanEval's form."""

    task_id: str = Field(min_length=1)
    prompt: str
    entry_point: str
    canonical_solution: str
    test: str


RowType = TypeVar("RowType", bound=SourceRow)


def read_record(kind: type[RowType], row: Mapping[str, Any]) -> RowType:
    """The fields of `kind` in a row; raises RecordRefused where one is missing or of the wrong type."""
    try:
        return kind.model_validate(row)
    except ValidationError as error:
        reason = "missing_field" if error.errors()[0]["type"] == "missing" else "wrong_type"
        raise RecordRefused(reason, first_complaint(error)) from None


def import_rows(source: str, problem_of_row: Callable[[Mapping[str, Any]], Problem]) -> Iterator[Problem | Dropped]:
    """One Problem or Dropped a row of a JSON Lines file."""
    for number, row in read_rows(Path(source)):
        record_id = str(row.get("task_id") or f"line {number}")
        try:
            yield problem_of_row(row)
        except RecordRefused as refusal:
            yield Dropped(record_id=record_id, reason=refusal.reason, detail=refusal.detail)
        except ValidationError as error:
            yield Dropped(record_id=record_id, reason="not_a_problem", detail=first_complaint(error))
        except RecursionError:
            yield Dropped(record_id=record_id, reason="not_a_problem", detail="its code is nested too deeply")


def parse_part(text: str, part: str) -> ast.Module:
    """A part of a row as Python; raises RecordRefused where it is not."""
    tree = parse(text)
    if tree is None:
        raise RecordRefused(f"{part}_not_python", text.strip()[:80])
    return tree


def entry_function(module: ast.Module, name: str) -> ast.FunctionDef:
    """The last function of that name in a module."""
    found = [node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == name]
    if not found:
        raise RecordRefused("no_entry_function", f"no function {name}")
    return found[-1]


def check_body(test_module: ast.Module) -> list[ast.stmt]:
    """The statements of `check(candidate)`."""
    body = _check_function(test_module).body
    if all(says_nothing(statement) for statement in body):
        raise RecordRefused("no_tests", "check asserts nothing")
    return body


def _check_function(test_module: ast.Module) -> ast.FunctionDef:
    found = [node for node in test_module.body if isinstance(node, ast.FunctionDef) and node.name == "check"]
    if not found or [argument.arg for argument in found[-1].args.args] != ["candidate"]:
        raise RecordRefused("no_check_function", "the test defines no check(candidate)")
    return found[-1]


def asserts_checker(test_module: ast.Module, prompt: ast.Module, entry_point: str) -> Checker:
    """A checker that keeps the test's own code, able to run without the program.

    The test may call what the prompt defines (HumanEval/32 calls `poly`), and the function under test by its own name (HumanEval/33): the
    first is copied from the prompt, the second becomes `candidate`.
    """
    used = {node.id for node in ast.walk(test_module) if isinstance(node, ast.Name)}
    body = [node for node in test_module.body if not _is_metadata(node)]
    helpers = [node for node in prompt.body if not (isinstance(node, ast.FunctionDef) and node.name == entry_point)]
    if used & _names_defined(helpers):
        body = helpers + body
    if entry_point in used:
        check = _check_function(test_module)
        check.body.insert(0, ast.parse(f"{entry_point} = candidate").body[0])
    return Checker(kind="asserts", code=ast.unparse(ast.Module(body=body, type_ignores=[])) + "\n")


def _names_defined(nodes: Sequence[ast.stmt]) -> set[str]:
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def _is_metadata(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "METADATA"
