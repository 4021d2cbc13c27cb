"""The records that stages pass on: Problem -> Completion -> Judgement.

Records are frozen: a later stage makes a new one instead of editing an earlier one. Pydantic checks them where they enter;
`parse_problem` turns its complaints into one line for a person.
"""

from __future__ import annotations

import ast
import datetime
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from microcoder_core.errors import InputError
from microcoder_core.values import JsonValue, check_tagged

Form = Literal["stdin", "function"]
Difficulty = Literal["easy", "medium", "hard"]
FinishReason = Literal["stop", "length"]
CheckerKind = Literal[
    "auto",
    "tokens",
    "lines",
    "exact",
    "float",
    "yesno",
    "unordered_tokens",
    "unordered_lines",
    "unordered",
    "program",
    "asserts",
]
STDIN_ONLY_CHECKERS = frozenset({"tokens", "lines", "unordered_tokens", "unordered_lines"})
FUNCTION_ONLY_CHECKERS = frozenset({"unordered", "asserts"})


TimeLimit = Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False)]
"""CPU seconds."""
MemoryLimit = Annotated[int, Field(gt=0, le=1 << 20)]
"""MiB; at most 1 TiB."""


class Record(BaseModel):
    """Base of all records: frozen, unknown fields refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Verdict(StrEnum):
    """What the judge says of one program."""

    ACCEPTED = "accepted"
    WRONG_ANSWER = "wrong_answer"
    TIME_LIMIT_EXCEEDED = "time_limit_exceeded"
    MEMORY_LIMIT_EXCEEDED = "memory_limit_exceeded"
    OUTPUT_LIMIT_EXCEEDED = "output_limit_exceeded"
    RUNTIME_ERROR = "runtime_error"
    COMPILE_ERROR = "compile_error"
    NO_PROGRAM = "no_program"
    JUDGE_ERROR = "judge_error"

    @property
    def outcome(self) -> Outcome:
        """The class of this verdict that the trainer looks at."""
        return _OUTCOMES.get(self, Outcome.INCORRECT)


class Outcome(StrEnum):
    """The four classes of verdicts; `UNGRADED` is our fault and never counts as reward 0."""

    CORRECT = "correct"
    INCORRECT = "incorrect"
    INCOMPLETE = "incomplete"
    UNGRADED = "ungraded"


_OUTCOMES = {
    Verdict.ACCEPTED: Outcome.CORRECT,
    Verdict.NO_PROGRAM: Outcome.INCOMPLETE,
    Verdict.JUDGE_ERROR: Outcome.UNGRADED,
}


class TestCase(Record):
    """One input with its expected output.

    For `stdin` problems both are text. For `function` problems `input` is the list of positional arguments and `expected` the
    result, as JSON with the tags of `microcoder_core.values` for what JSON lacks.
    """

    __test__ = False  # not a pytest class

    input: JsonValue
    expected: JsonValue


class Checker(Record):
    """How an answer is compared with the expected one; the kinds are those of docs/judge.md."""

    kind: CheckerKind = "auto"
    abs: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """Absolute tolerance of kind `float`; null there means 1e-6."""
    rel: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """Relative tolerance of kind `float`; null there means 1e-6."""
    code: str | None = None
    """Python source of kinds `program` (defines `check(input, expected, output) -> bool`) and `asserts` (`check(candidate)`)."""

    @model_validator(mode="after")
    def _fields_fit_kind(self) -> Self:
        if (self.code is not None) != (self.kind in ("program", "asserts")):
            raise ValueError(f"code is for kinds program and asserts, which need it; kind is {self.kind}")
        if self.code is not None:
            _check_defines_check(self.code)
        if self.kind != "float" and (self.abs is not None or self.rel is not None):
            raise ValueError(f"abs and rel are for kind float; kind is {self.kind}")
        return self


def _check_defines_check(code: str) -> None:
    try:
        defined = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.FunctionDef) and node.name == "check"]
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f" (line {error.lineno})" if isinstance(error, SyntaxError) else ""
        raise ValueError(f"code must be Python: {getattr(error, 'msg', error)}{line}") from None
    if not defined:
        raise ValueError("code must define a function named check")


class Problem(Record):
    """A programming problem with its tests. Required: problem_id, statement, form, tests; entry_point for `function`."""

    problem_id: Annotated[str, Field(min_length=1)]
    source: str | None = None
    url: str | None = None
    title: str | None = None
    date: str | None = None
    """ISO date of publication; `2023` and `2023-05` are allowed."""
    statement: Annotated[str, Field(min_length=1)]
    form: Form
    entry_point: str | None = None
    """Name of the function to define (form `function`)."""
    starter_code: str | None = None
    tests: tuple[TestCase, ...]
    """At least one, but for checker kind `asserts`, whose code is the test."""
    checker: Checker = Checker()
    time_limit_s: TimeLimit | None = None
    """CPU seconds a test; null means the judge's default."""
    memory_limit_mib: MemoryLimit | None = None
    tags: tuple[str, ...] = ()
    difficulty: Difficulty | None = None
    difficulty_scores: dict[str, Annotated[float, Field(allow_inf_nan=False)]] | None = None
    human_difficulty: str | None = None
    reference_solutions: tuple[str, ...] = ()
    wrong_solutions: tuple[str, ...] = ()
    licence: str | None = None

    @field_validator("date")
    @classmethod
    def _iso_date(cls, value: str | None) -> str | None:
        if value is not None:
            if not re.fullmatch(r"\d{4}(-\d\d){0,2}", value):
                raise ValueError("must be an ISO date: YYYY, YYYY-MM or YYYY-MM-DD")
            check_iso_day(first_day(value))
        return value

    @model_validator(mode="after")
    def _texts_are_utf8(self) -> Self:
        """Parquet and pipes carry UTF-8, which has no lone surrogates; values of function tests are escaped JSON, so may hold them."""
        stdin_texts = (text for test in self.tests for text in (test.input, test.expected)) if self.form == "stdin" else ()
        solutions = (*self.reference_solutions, *self.wrong_solutions)
        names = (self.problem_id, self.source, self.url, self.title, self.human_difficulty, self.licence, *self.tags)
        for text in (*names, self.statement, self.starter_code, self.checker.code, *solutions, *stdin_texts):
            if isinstance(text, str) and not _is_utf8(text):
                raise ValueError(f"text must be UTF-8, got a lone surrogate in {text[:40]!r}")
        return self

    @model_validator(mode="after")
    def _fields_fit_form(self) -> Self:
        if self.form == "function" and not (self.entry_point or "").isidentifier():
            raise ValueError("entry_point is required for form function and must be a Python name")
        if self.form == "stdin" and self.entry_point is not None:
            raise ValueError("entry_point is for form function only")
        wrong_form = FUNCTION_ONLY_CHECKERS if self.form == "stdin" else STDIN_ONLY_CHECKERS
        if self.checker.kind in wrong_form:
            raise ValueError(f"checker kind {self.checker.kind} does not fit form {self.form}")
        return self

    @model_validator(mode="after")
    def _tests_fit_form(self) -> Self:
        if not self.tests and self.checker.kind != "asserts":
            raise ValueError("tests must hold at least one test")
        for number, test in enumerate(self.tests):
            if self.form == "stdin" and not (isinstance(test.input, str) and isinstance(test.expected, str)):
                raise ValueError(f"tests.{number}: input and expected must be text for form stdin")
            if self.form == "function":
                if not isinstance(test.input, list):
                    raise ValueError(f"tests.{number}.input must be the list of positional arguments for form function")
                check_tagged(test.input)
                check_tagged(test.expected)
        return self


def first_day(date: str) -> str:
    """The first day that a date, which may be a year or a month alone, can mean."""
    return date + "-01-01"[len(date) - 4 :]


def last_day(date: str) -> str:
    """No day that a date can mean is later than this one (which the calendar need not have: 2023-02-31)."""
    return date + "-12-31"[len(date) - 4 :]


def check_iso_day(value: str) -> str:
    """`value`, where it is a day of the calendar; else raises ValueError."""
    try:
        if re.fullmatch(r"\d{4}-\d\d-\d\d", value) and datetime.date.fromisoformat(value):
            return value
    except ValueError:
        pass
    raise ValueError("must be an ISO date, YYYY-MM-DD, of the calendar")


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class Completion(Record):
    """One sampled response to a prompt."""

    text: str
    token_ids: tuple[int, ...]
    """Sampled tokens, the end-of-sequence token included where the model wrote one."""
    finish_reason: FinishReason
    """`stop` where the model ended by itself, `length` where it was cut off at the length limit."""
    logprobs: tuple[float, ...] | None = None
    """Natural log-probability of each token under softmax(logits / temperature), as long as `token_ids`."""
    temperature: float
    policy_version: int = 0
    """Number of optimiser steps that the sampling weights had seen."""


class Judgement(Record):
    """What the judge found for one program."""

    problem_id: str
    program_id: str | None = None
    verdict: Verdict
    tests_passed: Annotated[int, Field(ge=0)] = 0
    tests_total: Annotated[int, Field(ge=0)] = 0
    time_s: float = 0.0
    """CPU seconds of the slowest test that ran."""
    memory_mib: float = 0.0
    """Peak resident memory of the largest test that ran."""
    accepting_method: str | None = None
    """The compare method that accepted the last test; null unless accepted."""
    detail: str = ""
    """One line for a person: the failing test, the exception's class. Never an expected output."""
    sandbox: tuple[str, ...] = ()
    """The isolation layers that held."""

    @property
    def outcome(self) -> Outcome:
        return self.verdict.outcome


class Dropped(Record):
    """A record that a stage left out, and why."""

    record_id: str
    reason: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
    detail: str = ""


RecordType = TypeVar("RecordType", bound=BaseModel)


def parse_record(kind: type[RecordType], row: Mapping[str, Any], where: str) -> RecordType:
    """The record in `row`, or one clear line.

    Args:
        where: Where the row came from, such as `problems.jsonl:12`.

    Raises:
        InputError: The first rule that the row breaks.
    """
    try:
        return kind.model_validate(row, strict=False)
    except ValidationError as error:
        raise InputError(f"{where}: {first_complaint(error)}") from None


def first_complaint(error: ValidationError) -> str:
    """The first complaint of pydantic as `field: rule, got value`."""
    complaint = error.errors(include_url=False)[0]
    message = complaint["msg"].removeprefix("Value error, ")
    if complaint["type"] == "extra_forbidden":
        message = "unknown key; remove it or correct its spelling"
    field = _dotted(complaint["loc"])
    if complaint["type"] == "missing" or not field:
        return f"{field}: {message}" if field else message
    got = repr(complaint["input"])
    return f"{field}: {message}, got {got if len(got) <= 80 else got[:77] + '...'}"


def _dotted(location: Sequence[int | str]) -> str:
    return ".".join(str(part) for part in location)
