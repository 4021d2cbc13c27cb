"""What a problem must have to be worth keeping: words, tests, not too many of either, and answers that can be judged after the end."""

from __future__ import annotations

import json
import re
from typing import Literal, Self

from pydantic import Field, model_validator

from microcoder_core.config import Config
from microcoder_core.data.text import normalised_statement, words
from microcoder_core.records import Dropped, Problem, TestCase

_INTERACTIVE = re.compile(
    r"\binteractive (?:problem|task)s?\b(?! is not)|\b(?:problem|task) is interactive\b"
    r"|\binteract(?:ion|s)? with (?:the|our|a) (?:judge|grader|interactor|jury|checker)\b|\bthe interactor\b"
)


class ConstraintConfig(Config):
    """Bounds on the size of a problem."""

    min_statement_words: int = Field(default=1, ge=0)
    """Words that a statement must have. Chosen: 1, since drills and MBPP are short; 20 suits contest problems."""
    max_statement_words: int = Field(default=4000, ge=1)
    """Words that a statement may have, markup not counted. Chosen, untested."""
    min_tests: int = Field(default=1, ge=0)
    """Tests that a problem must have; a problem whose test is an `asserts` checker is exempt. Chosen, untested."""
    interactive: Literal["drop", "keep"] = "drop"
    """What becomes of a problem whose statement says that the program talks with the judge while it runs: ours does not talk."""
    max_tests: int | None = Field(default=15, ge=1)
    """Tests kept of a problem, those with the longest inputs (paper: at most 15, the longest). null keeps all."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min_statement_words > self.max_statement_words:
            raise ValueError(f"min_statement_words must be at most max_statement_words ({self.max_statement_words})")
        if self.max_tests is not None and self.min_tests > self.max_tests:
            raise ValueError(f"min_tests must be at most max_tests ({self.max_tests})")
        return self


def apply_constraints(problem: Problem, config: ConstraintConfig) -> Problem | Dropped:
    """The problem with its longest tests, or why it is left out."""
    count = len(words(problem.statement))
    if count < config.min_statement_words:
        return _dropped(problem, "statement_too_short", f"{count} words, at least {config.min_statement_words}")
    if count > config.max_statement_words:
        return _dropped(problem, "statement_too_long", f"{count} words, at most {config.max_statement_words}")
    if config.interactive == "drop" and (said := _INTERACTIVE.search(normalised_statement(problem.statement))):
        return _dropped(problem, "interactive", f"the statement says {said.group()!r}")
    if problem.checker.kind != "asserts" and len(problem.tests) < config.min_tests:
        return _dropped(problem, "too_few_tests", f"{len(problem.tests)} tests, at least {config.min_tests}")
    if config.max_tests is None or len(problem.tests) <= config.max_tests:
        return problem
    return problem.model_copy(update={"tests": longest_tests(problem.tests, config.max_tests)})


def longest_tests(tests: tuple[TestCase, ...], count: int) -> tuple[TestCase, ...]:
    """The `count` tests with the longest inputs, in their order; the earlier one where two are equally long."""
    by_length = sorted(range(len(tests)), key=lambda number: -_length(tests[number]))
    return tuple(tests[number] for number in sorted(by_length[:count]))


def _length(test: TestCase) -> int:
    return len(test.input) if isinstance(test.input, str) else len(json.dumps(test.input))


def _dropped(problem: Problem, reason: str, detail: str) -> Dropped:
    return Dropped(record_id=problem.problem_id, reason=reason, detail=detail)
