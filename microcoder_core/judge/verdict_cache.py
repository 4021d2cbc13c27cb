"""Verdicts by problem and program: a program that was judged on a problem is not run on it again."""

from __future__ import annotations

from collections import OrderedDict
from concurrent.futures import Future
from threading import Lock
from weakref import ref

from microcoder_core.records import Judgement, Problem, Verdict

_OF_THE_MOMENT = (Verdict.JUDGE_ERROR, Verdict.TIME_LIMIT_EXCEEDED, Verdict.MEMORY_LIMIT_EXCEEDED)
"""What our own failure, or load on the machine, may have brought about: judged again when asked again."""


class VerdictCache:
    """The verdicts asked for last, those that are still to come among them. May be used from several threads.

    Args:
        capacity: Verdicts to keep; 0 keeps none.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._lock = Lock()
        self._kept: OrderedDict[tuple[int, str], tuple[ref[Problem], Future[Judgement]]] = OrderedDict()

    def get(self, problem: Problem, program: str) -> Future[Judgement] | None:
        """The verdict on `program`, where it is known or on its way."""
        with self._lock:
            kept = self._kept.get((id(problem), program))
            if kept is None or kept[0]() is not problem or _may_differ(kept[1]):  # a problem that is gone may have left its id to another
                return None
            self._kept.move_to_end((id(problem), program))
            return kept[1]

    def put(self, problem: Problem, program: str, verdict: Future[Judgement]) -> None:
        """Keeps a verdict, which may be still to come."""
        with self._lock:
            self._kept[id(problem), program] = (ref(problem), verdict)  # weak: thousands of verdicts hold no problem and its tests
            self._kept.move_to_end((id(problem), program))
            while len(self._kept) > self._capacity:
                self._kept.popitem(last=False)


def _may_differ(verdict: Future[Judgement]) -> bool:
    if not verdict.done():
        return False
    return verdict.cancelled() or verdict.exception() is not None or verdict.result().verdict in _OF_THE_MOMENT


def renamed(verdict: Future[Judgement], program_id: str | None) -> Future[Judgement]:
    """`verdict`, as that of the program `program_id`."""
    answer: Future[Judgement] = Future()

    def pass_on(done: Future[Judgement]) -> None:
        if done.cancelled():
            answer.cancel()
        elif error := done.exception():
            answer.set_exception(error)
        else:
            answer.set_result(done.result().model_copy(update={"program_id": program_id}))

    verdict.add_done_callback(pass_on)
    return answer
