"""Problems whose tests tell right from wrong: reference solutions pass them, known wrong ones do not."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Literal, Protocol

from pydantic import Field

from microcoder_core.config import Config
from microcoder_core.records import Dropped, Judgement, Problem, Verdict


class VerifyConfig(Config):
    """What the judge is asked about a problem."""

    references: bool = True
    """Judge reference solutions. Those not accepted are removed; a problem none of whose references is accepted is left out."""
    wrong_solutions: bool = True
    """Judge wrong solutions; a problem that accepts one is left out, since its tests are too weak."""
    without_reference: Literal["keep", "drop"] = "keep"
    """What becomes of a problem without any reference solution."""
    time_limits: Literal["as_given", "from_references"] = "from_references"
    """`from_references`: a problem that names no time limit gets one of `TIME_LIMIT_STEPS_S`, where its references need no more than a
    `TIME_LIMIT_FACTOR`th of it: programs that do not end are what costs a judge most. `as_given`: it keeps the judge's own."""
    window: int = Field(default=64, ge=1)
    """Problems that wait for their judgements at most: bounds memory. Chosen, untested."""


TIME_LIMIT_FACTOR = 50.0
"""A program that is so many times slower than the slowest reference has failed. Chosen: several times what contests allow a language."""
TIME_LIMIT_STEPS_S = (1.0, 2.0)
"""Few and far apart, so that a problem hardly ever gets another limit on another day: up to 0.02 s of CPU time 1 s, up to 0.04 s 2 s."""

_LIMITS = (Verdict.TIME_LIMIT_EXCEEDED, Verdict.MEMORY_LIMIT_EXCEEDED)
"""Which clock or meter ran out first differs from run to run, so their details are left out of the data set."""


_ADDRESS = re.compile(r"0x[0-9a-f]+")
"""In the message of an exception, where an object lies: differs from run to run."""


class Submit(Protocol):
    """Hands one program to a judge."""

    def __call__(self, problem: Problem, program: str, program_id: str | None = None) -> Future[Judgement]: ...


@dataclass(frozen=True, slots=True)
class _Waiting:
    problem: Problem
    references: list[Future[Judgement]]
    wrong: list[Future[Judgement]]

    def done(self) -> bool:
        return all(future.done() for future in (*self.references, *self.wrong))


def verified(records: Iterable[Problem | Dropped], submit: Submit, config: VerifyConfig) -> Iterator[Problem | Dropped]:
    """Each problem, or why it is left out, in order; programs of several problems are judged at a time.

    Records dropped earlier wait in the same line: the order of what comes out must not depend on the judge's speed.
    """
    waiting: deque[_Waiting | Dropped] = deque()
    for record in records:
        waiting.append(record if isinstance(record, Dropped) else _submitted(record, submit, config))
        while waiting and (len(waiting) > config.window or _is_done(waiting[0])):
            yield _result(waiting.popleft(), config)
    while waiting:
        yield _result(waiting.popleft(), config)


def _is_done(record: _Waiting | Dropped) -> bool:
    return isinstance(record, Dropped) or record.done()


def _result(record: _Waiting | Dropped, config: VerifyConfig) -> Problem | Dropped:
    return record if isinstance(record, Dropped) else _verdict(record, config)


def _submitted(problem: Problem, submit: Submit, config: VerifyConfig) -> _Waiting:
    references = problem.reference_solutions if config.references else ()
    wrong = problem.wrong_solutions if config.wrong_solutions else ()
    return _Waiting(
        problem,
        [submit(problem, program, f"reference_{number}") for number, program in enumerate(references)],
        [submit(problem, program, f"wrong_{number}") for number, program in enumerate(wrong)],
    )


def _verdict(waiting: _Waiting, config: VerifyConfig) -> Problem | Dropped:
    problem = waiting.problem
    if not problem.reference_solutions and config.without_reference == "drop":
        return Dropped(record_id=problem.problem_id, reason="no_reference")
    references = [future.result() for future in waiting.references]
    wrong = [future.result() for future in waiting.wrong]
    for judgement in (*references, *wrong):
        if judgement.verdict is Verdict.JUDGE_ERROR:
            return _dropped(problem, "judge_error", judgement)
    accepted = [judgement.verdict is Verdict.ACCEPTED for judgement in references]
    if references and not any(accepted):
        return _dropped(problem, "reference_not_accepted", references[0])
    for judgement in wrong:
        if judgement.verdict is Verdict.ACCEPTED:
            return _dropped(problem, "wrong_solution_accepted", judgement)
    changes: dict[str, object] = {}
    if not all(accepted):
        kept = (program for program, passed in zip(problem.reference_solutions, accepted, strict=True) if passed)
        changes["reference_solutions"] = tuple(kept)
    if problem.time_limit_s is None and references and config.time_limits == "from_references":
        changes["time_limit_s"] = fitting_time_limit(one.time_s for one in references if one.verdict is Verdict.ACCEPTED)
    return problem.model_copy(update=changes) if changes else problem


def fitting_time_limit(references_s: Iterable[float]) -> float | None:
    """The time limit (CPU seconds a test) that fits references which took so long on their slowest test; null where no step does."""
    needed = TIME_LIMIT_FACTOR * max(references_s)
    return next((step for step in TIME_LIMIT_STEPS_S if needed <= step), None)


def _dropped(problem: Problem, reason: str, judgement: Judgement) -> Dropped:
    detail = f"{judgement.program_id}: {judgement.verdict.value}"
    if judgement.detail and judgement.verdict not in _LIMITS:
        detail += f", {_ADDRESS.sub('0x...', judgement.detail)}"
    return Dropped(record_id=problem.problem_id, reason=reason, detail=detail)
