"""The programs file: one program of a problem a line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Self

from pydantic import model_validator

from microcoder_core.errors import InputError
from microcoder_core.programs import extract_program
from microcoder_core.records import FinishReason, Problem, Record, parse_record
from microcoder_core.storage.datasets import read_problems
from microcoder_core.storage.rows import read_rows


class ProgramRow(Record):
    """A line of the programs file: `code` as it stands, or a `completion` that holds it."""

    problem_id: str
    program_id: str | None = None
    code: str | None = None
    completion: str | None = None
    finish_reason: FinishReason = "stop"
    """Of the completion: `length` where it was cut off."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.code is None) == (self.completion is None):
            raise ValueError("give either code or completion")
        return self

    @property
    def program(self) -> str | None:
        """The program; None where the completion holds none."""
        return self.code if self.completion is None else extract_program(self.completion, self.finish_reason)


def read_programs(file: Path) -> Iterator[tuple[int, ProgramRow]]:
    """Line number and row of each line. Raises InputError that names the first line which breaks a rule."""
    for number, row in read_rows(file):
        yield number, parse_record(ProgramRow, row, f"{file}:{number}")


def load_problems(dataset: Path, programs: Path) -> tuple[dict[str, Problem], int]:
    """The problems of `dataset` that `programs` asks for, by id, and the number of programs.

    Raises:
        InputError: A line that breaks a rule, a file without programs, a problem_id that the data set does not have, or has twice.
    """
    first_line: dict[str, int] = {}
    count = 0
    for number, row in read_programs(programs):
        first_line.setdefault(row.problem_id, number)
        count += 1
    if not count:
        raise InputError(f"{programs}: holds no program; give one JSON object a line with problem_id and code or completion")
    problems: dict[str, Problem] = {}
    for problem in read_problems(dataset):
        if problem.problem_id in problems:
            raise InputError(f"{dataset}: problem_id: must differ from problem to problem, got {problem.problem_id!r} twice")
        if problem.problem_id in first_line:
            problems[problem.problem_id] = problem
    for problem_id, number in first_line.items():
        if problem_id not in problems:
            raise InputError(f"{programs}:{number}: problem_id: must be a problem of {dataset}, got {problem_id!r}")
    return problems, count
