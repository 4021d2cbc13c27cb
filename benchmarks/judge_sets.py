"""The programs that the judge is measured on, each with whether it is right.

The folder given holds `data/` (HumanEval, HumanEvalPack, MBPP, Code Jam) and `cases/judge.jsonl`.
"""

from __future__ import annotations

import base64
import json
import random
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from microcoder_core.data.checkers import propose
from microcoder_core.data.importers.humaneval import import_humaneval
from microcoder_core.data.importers.jsonl import import_jsonl
from microcoder_core.data.importers.mbpp import import_mbpp
from microcoder_core.records import Problem
from microcoder_core.storage.rows import read_rows
from tests.judge.test_cases import problem_of
from tests.judge.test_references import GOOD_HERE, KNOWN_BAD


class Item(NamedTuple):
    """A program with its problem, and whether it is right."""

    problem: Problem
    program: str
    is_right: bool
    reference_s: float = 0.0
    """CPU seconds that a right program needs on its slowest test; 0 where none was measured."""


def cases(data: Path) -> list[Item]:
    """The public cases of evaluators that were wrong, without the hostile ones, which a peer without a sandbox would carry out."""
    rows = [json.loads(line) for line in (data / "cases/judge.jsonl").read_text().splitlines()]
    return [Item(problem_of(row), row["code"], row["right_verdict"] == "pass") for row in rows if not row.get("danger")]


def humaneval_pack(data: Path) -> list[Item]:
    """HumanEvalPack's right and wrong version of each problem of HumanEval."""
    rows = (row for _, row in read_rows(data / "data/humanevalpack_python/humanevalpack_python.jsonl.gz"))
    return [
        Item(problem, row["prompt"] + row[part], part == "canonical_solution")
        for problem, row in zip(_humaneval_problems(data), rows, strict=True)
        for part in ("canonical_solution", "buggy_solution")
    ]


def humaneval(data: Path) -> list[Item]:
    """HumanEval's own solutions."""
    return [Item(problem, program, True) for problem in _humaneval_problems(data) for program in problem.reference_solutions]


def mbpp(data: Path) -> list[Item]:
    """MBPP's own solutions, without the ten that fail or hang on their own tests: they are neither right nor meant to be wrong."""
    left_out = {f"MBPP/{number}" for number in KNOWN_BAD - GOOD_HERE.keys()}
    problems = (one for one in import_mbpp(str(data / "data/mbpp/mbpp_release_v1.jsonl.gz")) if isinstance(one, Problem))
    return [Item(one, program, True) for one in problems if one.problem_id not in left_out for program in one.reference_solutions]


def codejam(data: Path) -> list[Item]:
    """Code Jam has tests and no programs: here are programs that know the stored answers, and write them as they are or spoilt."""
    problems = [one for one in import_jsonl(str(data / "data/codejam/codejam.jsonl.gz")) if isinstance(one, Problem)]
    return [item for problem in problems for item in answer_keys(problem)]


SETS: dict[str, Callable[[Path], list[Item]]] = {
    "public cases": cases,
    "HumanEvalPack": humaneval_pack,
    "HumanEval": humaneval,
    "MBPP": mbpp,
    "Code Jam": codejam,
}


def sample(items: Sequence[Item], limit: int | None) -> list[Item]:
    """The programs of `limit` problems, always the same ones; all where `limit` is None."""
    names = sorted({item.problem.problem_id for item in items})
    if limit is None or limit >= len(names):
        return list(items)
    chosen = set(random.Random(0).sample(names, limit))
    return [item for item in items if item.problem.problem_id in chosen]


def answer_keys(problem: Problem) -> Iterator[Item]:
    """Programs for a `stdin` problem that know its answers.

    Right: the answers as stored; with other blanks at the ends of lines; where the statement allows an error, with other digits.
    Wrong: the last line missing; the last whole number one larger; the lines in reverse order; one more token.
    """
    written = [test.expected for test in problem.tests]
    yield Item(problem, _answering(problem, written), True)
    yield Item(problem, _answering(problem, [_other_blanks(text) for text in written]), True)
    proposal = propose(problem)
    if proposal and proposal.checker and proposal.checker.kind == "float":
        yield Item(problem, _answering(problem, [_other_digits(text) for text in written]), True)
    for spoil in (_without_last_line, _last_number_larger, _lines_reversed, _one_more_token):
        answers = [spoil(text) for text in written]
        if any(answer.split() != text.split() for answer, text in zip(answers, written, strict=True)):
            yield Item(problem, _answering(problem, answers), False)


def _answering(problem: Problem, answers: Sequence[str]) -> str:
    """A program that knows an answer to each input."""
    table = {zlib.crc32(test.input.encode()): answer for test, answer in zip(problem.tests, answers, strict=True)}
    packed = base64.b64encode(zlib.compress(json.dumps(table).encode())).decode()
    return (
        "import base64, json, sys, zlib\n"
        f"answers = json.loads(zlib.decompress(base64.b64decode('{packed}')))\n"
        "print(answers[str(zlib.crc32(sys.stdin.read().encode()))], end='')\n"
    )


def _other_blanks(text: str) -> str:
    return "".join(f"{line.rstrip()} \n" for line in text.splitlines())


def _other_digits(text: str) -> str:
    """With real numbers a billionth larger."""
    return re.sub(r"(?<=\s)-?\d+\.\d+(?=\s)", lambda found: f"{float(found[0]) * (1 + 1e-9):.12f}", text)


def _without_last_line(text: str) -> str:
    return "".join(text.rstrip().splitlines(keepends=True)[:-1])


def _last_number_larger(text: str) -> str:
    return re.sub(r"(?<=\s)\d{1,999}(?=\s*$)", lambda found: str(int(found[0]) + 1), text)


def _lines_reversed(text: str) -> str:
    return "\n".join(reversed(text.splitlines())) + "\n"


def _one_more_token(text: str) -> str:
    return text.rstrip() + " 0\n"


def _humaneval_problems(data: Path) -> list[Problem]:
    return [one for one in import_humaneval(str(data / "data/humaneval/HumanEval.jsonl.gz")) if isinstance(one, Problem)]
