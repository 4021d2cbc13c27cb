"""What a request must be, and the problems known from earlier ones."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Annotated, Any, NamedTuple, NoReturn

from pydantic import Field

from microcoder_core.errors import InputError
from microcoder_core.records import Judgement, Problem, Record, parse_record

_KNOWN_BYTES = 64 * 1024 * 1024


class SentProgram(Record):
    """A program of a batch."""

    problem: Annotated[int, Field(ge=0)]
    """Which of the batch's problems it is for, from 0."""
    program: str | None = None
    """Its source; null where a completion held none (verdict `no_program`)."""
    program_id: str | None = None
    """Comes back with the judgement."""


class Batch(Record):
    """Programs with their problems, each problem once."""

    problems: tuple[Problem, ...]
    programs: Annotated[tuple[SentProgram, ...], Field(min_length=1)]


class Single(Record):
    """One program with its problem."""

    problem: Problem
    program: str | None = None
    program_id: str | None = None


class Answer(Record):
    """A line of the answer to a batch."""

    index: int
    """Which program of the batch this is about, from 0."""
    judgement: Judgement


class Item(NamedTuple):
    """A program to judge."""

    problem: Problem
    program: str | None
    program_id: str | None


class KnownProblems:
    """Problems by content: the same problem is the same object, whichever request brought it, so that what the judge knows of it counts.

    Keeps the last ones, up to 64 MiB of JSON.
    """

    def __init__(self, max_bytes: int = _KNOWN_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._known: OrderedDict[bytes, tuple[Problem, int]] = OrderedDict()
        self._lock = Lock()

    def get(self, row: Mapping[str, Any], where: str) -> Problem:
        """The problem in `row`. Raises InputError that names the first rule it breaks."""
        try:
            text = json.dumps(row, sort_keys=True).encode()
        except RecursionError:
            raise InputError(f"{where}: nested too deeply") from None
        key = hashlib.sha256(text).digest()
        with self._lock:
            known = self._known.get(key)
            if known:
                self._known.move_to_end(key)
                return known[0]
        problem = parse_record(Problem, row, where)
        with self._lock:
            if key not in self._known:
                self._known[key] = (problem, len(text))
                self._bytes += len(text)
            problem = self._known[key][0]
            while self._bytes > self._max_bytes and len(self._known) > 1:
                self._bytes -= self._known.popitem(last=False)[1][1]
        return problem


def batch_items(body: bytes, known: KnownProblems) -> list[Item]:
    """The programs of a batch. Raises InputError that names the first rule it breaks."""
    row = _json_object(body)
    _check_keys(row, Batch)
    problems = [known.get(_object(one, f"problems.{number}"), f"problems.{number}") for number, one in enumerate(_rows(row, "problems"))]
    items = []
    for number, one in enumerate(_rows(row, "programs")):
        sent = parse_record(SentProgram, _object(one, f"programs.{number}"), f"programs.{number}")
        if sent.problem >= len(problems):
            raise InputError(f"programs.{number}.problem: must be one of the {len(problems)} problems, counted from 0, got {sent.problem}")
        items.append(Item(problems[sent.problem], sent.program, sent.program_id))
    if not items:
        raise InputError("programs: must hold at least one program")
    return items


def single_item(body: bytes, known: KnownProblems) -> Item:
    """The program of a request for one. Raises InputError that names the first rule it breaks."""
    row = _json_object(body)
    _check_keys(row, Single)
    problem = known.get(_object(row.get("problem"), "problem"), "problem")
    sent = parse_record(SentProgram, {**{key: row[key] for key in row if key != "problem"}, "problem": 0}, "request")
    return Item(problem, sent.program, sent.program_id)


def _check_keys(row: Mapping[str, Any], kind: type[Record]) -> None:
    for key in row:
        if key not in kind.model_fields:
            raise InputError(f"{key}: unknown key; the keys are {', '.join(kind.model_fields)}")


def _rows(row: Mapping[str, Any], key: str) -> Sequence[Any]:
    rows = row.get(key)
    if not isinstance(rows, list):
        raise InputError(f"{key}: must be a list, got {type(rows).__name__}")
    return rows


def _object(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{where}: must be a JSON object, got {type(value).__name__}")
    return value


def _json_object(body: bytes) -> Mapping[str, Any]:
    """Read by `json`, not by pydantic: a program may hold lone surrogates, as a model may have written them."""
    try:
        row = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InputError(f"request: not JSON ({error})") from None
    return _object(row, "request")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
