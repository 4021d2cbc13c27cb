"""Format `jsonl`: Problems as they are, in a JSON Lines file (.gz and .zst too) or a data set folder.

A row that is no Problem is an error that names its line, not a dropped record: the file claims to hold Problems.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from microcoder_core.records import Dropped, Problem, TestCase
from microcoder_core.storage.datasets import read_problems


def import_jsonl(source: str) -> Iterator[Problem | Dropped]:
    """The problems of a file or a data set folder, with Windows line ends in stored inputs and outputs made plain."""
    for problem in read_problems(Path(source)):
        yield _with_plain_line_ends(problem)


def _with_plain_line_ends(problem: Problem) -> Problem:
    if problem.form != "stdin" or not any("\r" in test.input or "\r" in test.expected for test in problem.tests):
        return problem
    tests = tuple(TestCase(input=_plain(test.input), expected=_plain(test.expected)) for test in problem.tests)
    return problem.model_copy(update={"tests": tests})


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n")
