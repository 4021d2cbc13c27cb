"""Problems that are there already: by id, by statement, by reference solution. Memory holds one hash each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from microcoder_core.config import Config
from microcoder_core.data.text import normalised_statement
from microcoder_core.programs import normalised_program
from microcoder_core.records import Dropped, Problem


class DuplicateConfig(Config):
    """Which likeness makes a problem a duplicate of an earlier one. Equal ids always do."""

    by_statement: bool = True
    """Equal statements, markup, case and layout aside."""
    by_reference: bool = True
    """A reference solution in common, names, comments and layout aside."""


class DuplicateFilter:
    """Remembers the problems that were kept."""

    def __init__(self, config: DuplicateConfig) -> None:
        self._config = config
        self._first: dict[bytes, str] = {}

    def __call__(self, problem: Problem) -> Problem | Dropped:
        """The problem where it is new, or which one it repeats."""
        keys = dict(self._keys(problem))
        for key, reason in keys.items():
            if key in self._first:
                return Dropped(record_id=problem.problem_id, reason=reason, detail=f"same as {self._first[key]}")
        self._first.update(dict.fromkeys(keys, problem.problem_id))
        return problem

    def _keys(self, problem: Problem) -> Iterator[tuple[bytes, str]]:
        yield fingerprint("id", problem.problem_id), "duplicate_id"
        if self._config.by_statement:
            yield fingerprint("statement", normalised_statement(problem.statement)), "duplicate_statement"
        if self._config.by_reference:
            for form in reference_forms(problem):
                yield fingerprint("reference", form), "duplicate_reference"


def reference_forms(problem: Problem) -> list[str]:
    """The normalised form of each reference solution that is Python."""
    return [form for program in problem.reference_solutions if (form := normalised_program(program)) is not None]


def fingerprint(kind: str, text: str) -> bytes:
    """16 bytes that stand for a text of a kind."""
    return hashlib.blake2b(f"{kind}\0{text}".encode("utf-8", "surrogatepass"), digest_size=16).digest()
