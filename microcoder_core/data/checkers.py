"""Which checker a problem needs, as far as its statement and its reference solutions tell.

Covers: stated tolerances ("absolute or relative error of 10^-6"), answers "in any order", YES and NO "in any case", problems of which "any"
answer is right, references that disagree with the stored answers by order or rounding.
Does not cover: what only a person can read out of a statement. Phrases count only in a sentence that says what to print or return: "the
operations may be done in any order" is about something else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Literal, Protocol

from microcoder_core.data.text import plain_text
from microcoder_core.records import Checker, Judgement, Problem, Record, Verdict

UNSPECIFIC = ("auto", "tokens", "lines", "exact")
"""Kinds that a proposal may take the place of; any other was chosen by somebody."""
_ANSWER = r"(?:print|output|return|write|list|report|display|answers?)"
_NEAR = r"[^.;]{0,80}?"
"""In the same sentence, not far away."""
_POWER = r"(?:10\s*\^?\s*\{?\s*-\s*(\d{1,2})\b|1e-(\d{1,2})\b|(0\.0*1)\b)"
_KINDS_OF_ERROR = r"(absolute or relative|relative or absolute|absolute|relative)"
_BOUND = r"(?:of|at most|exceed\w*|within|below|than|by)"
_ERROR = re.compile(rf"{_KINDS_OF_ERROR} error {_NEAR}{_BOUND} (?:at most )?[$\s]*{_POWER}")
_ANY_ORDER = re.compile(rf"(?<!not )\b{_ANSWER}\b[^.;,]{{0,60}},? ?\b(?:in any order|order (?:does not|doesn't) matter)")
_ANY_ANSWER = re.compile(
    rf"\b{_ANSWER}(?: out)? any (?:one )?(?:of (?:them|these|those)|such|valid|possible|correct|optimal|solution|answer)"
)
_ANY_CASE = re.compile(r"\b(?:any|either) (?:letter )?case\b|case[- ]insensitive|upper ?case or lower ?case|lower ?case or upper ?case")
_YES_NO = {"yes", "no"}


class Proposal(Record):
    """What a problem should be compared with, and why."""

    problem_id: str
    present: str
    """Kind of the checker that it has."""
    checker: Checker | None
    """Null: several answers are right, and only code of the problem's own (kind `program`) could tell them."""
    source: Literal["statement", "references"]
    reason: str


class Submit(Protocol):
    """Hands one program to a judge."""

    def __call__(self, problem: Problem, program: str) -> Future[Judgement]: ...


def propose(problem: Problem, submit: Submit | None = None) -> Proposal | None:
    """Another checker for a problem, or None where nothing speaks against the one that it has.

    Args:
        submit: Judges reference solutions; without it the statement alone is read.
    """
    if problem.checker.kind not in UNSPECIFIC:
        return None
    return _from_statement(problem) or (_from_references(problem, submit) if submit and problem.reference_solutions else None)


def _from_statement(problem: Problem) -> Proposal | None:
    text = " ".join(plain_text(problem.statement).replace("\u2212", "-").replace("\u2013", "-").split()).lower()
    if (found := _ERROR.search(text)) and _has_number(problem):
        tolerance = float(found[4]) if found[4] else 10.0 ** -int(found[2] or found[3])
        both = "or" in found[1]
        checker = Checker(
            kind="float", abs=tolerance if both or found[1] == "absolute" else 0.0, rel=tolerance if both or found[1] == "relative" else 0.0
        )
        return _proposal(problem, checker, "statement", found[0])
    if found := _ANY_ANSWER.search(text):
        return _proposal(problem, None, "statement", found[0])
    if (found := _ANY_ORDER.search(text)) and (loosest := _any_order(problem)):
        return _proposal(problem, loosest, "statement", found[0])
    if (found := _ANY_CASE.search(text)) and _is_yes_no(problem):
        return _proposal(problem, Checker(kind="yesno"), "statement", found[0])
    return None


def _from_references(problem: Problem, submit: Submit) -> Proposal | None:
    if _all_accepted(problem, submit):
        return None
    for checker, why in _looser(problem):
        if _all_accepted(problem.model_copy(update={"checker": checker}), submit):
            return _proposal(problem, checker, "references", f"references differ from the stored answers by {why}")
    return None


def _looser(problem: Problem) -> Iterator[tuple[Checker, str]]:
    yield Checker(kind="float"), "rounding"
    if loosest := _any_order(problem):
        yield loosest, "order"


def _all_accepted(problem: Problem, submit: Submit) -> bool:
    verdicts = [submit(problem, program) for program in problem.reference_solutions]
    return all(verdict.result().verdict is Verdict.ACCEPTED for verdict in verdicts)


def _any_order(problem: Problem) -> Checker | None:
    """The checker that leaves order free at the coarsest grain that the answers have; None where they are single things."""
    answers = [test.expected for test in problem.tests]
    if problem.form == "function":
        return Checker(kind="unordered") if any(isinstance(answer, list | dict) for answer in answers) else None
    if any(len(line.split()) > 1 for answer in answers for line in answer.splitlines()) and any(
        answer.strip().count("\n") for answer in answers
    ):
        return Checker(kind="unordered_lines")
    return Checker(kind="unordered_tokens") if any(len(answer.split()) > 1 for answer in answers) else None


def _has_number(problem: Problem) -> bool:
    return any(re.search(r"\d", json.dumps(test.expected)) for test in problem.tests)


def _is_yes_no(problem: Problem) -> bool:
    words = {word for test in problem.tests if isinstance(test.expected, str) for word in test.expected.lower().split()}
    return bool(words) and words <= _YES_NO


def _proposal(problem: Problem, checker: Checker | None, source: Literal["statement", "references"], reason: str) -> Proposal:
    return Proposal(problem_id=problem.problem_id, present=problem.checker.kind, checker=checker, source=source, reason=reason)
