"""The judge: programs in, judgements out, many at a time.

Covers: worker threads with a zygote each, retry where a worker process is lost, order, bounded look-ahead.
Does not cover: what a verdict means (`grading`), how a program is run (`execution`, `sandbox`).
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Protocol, Self, TypeAlias

from microcoder_core.errors import JudgeError
from microcoder_core.judge.config import JudgeConfig
from microcoder_core.judge.grading import grade
from microcoder_core.judge.preparation import Preparations
from microcoder_core.judge.process import ZygoteDied, ZygoteOutOfMemory, close_own_memory, remove_leftovers
from microcoder_core.judge.verdict_cache import VerdictCache, renamed
from microcoder_core.judge.zygotes import Zygotes
from microcoder_core.records import Judgement, Problem, Verdict

__all__ = ["AnyJudge", "Item", "Judge", "JudgeConfig", "judged_in_order", "open_judge"]

logger = logging.getLogger(__name__)

Item: TypeAlias = tuple[Problem, str | None, str | None]
"""A problem, a program (None where a completion holds none), and the program's name."""

_TRIES = 3
_LOOK_AHEAD = 8


class AnyJudge(Protocol):
    """What the judge in this process and the client of a service have in common. Use as a context manager."""

    config: JudgeConfig
    layers: tuple[str, ...]
    """Layers of the sandbox that hold."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...

    def submit(self, problem: Problem, program: str | None, program_id: str | None = None) -> Future[Judgement]:
        """The judgement to come of one program; None for a program is verdict `no_program`. Never raises for a bad program."""

    def judge_many(self, items: Iterable[Item]) -> Iterator[Judgement]:
        """The judgements of (problem, program, program_id) in their order; takes a few ahead of what it gives."""

    def close(self, abandon: bool = False) -> None:
        """Ends it, after what was submitted is done; with `abandon` at once."""


class Judge:
    """Judges programs in a sandbox. Use as a context manager; the workers start with the first program.

    Args:
        config: Settings; null means the defaults.

    Raises:
        JudgeError: On entering, where the sandbox is below the minimum and the configuration does not say `none`.
    """

    def __init__(self, config: JudgeConfig | None = None) -> None:
        self.config = config or JudgeConfig()
        self._preparations = Preparations(self.config)
        self._verdicts = VerdictCache(self.config.remembered_verdicts)
        self._local = threading.local()
        self._started: list[Zygotes] = []
        self._pool = ThreadPoolExecutor(self.config.num_workers, thread_name_prefix="judge")
        self._is_closing = False
        self.layers: tuple[str, ...] = ()

    def __enter__(self) -> Self:
        try:
            self.layers = self._pool.submit(self._check_layers).result()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close(abandon=error is not None)

    def close(self, abandon: bool = False) -> None:
        """Ends all worker processes, after what was submitted is done.

        Args:
            abandon: Whether to leave what has not started and to cut short what runs.
        """
        self._is_closing = abandon
        if abandon:
            self._pool.shutdown(wait=False, cancel_futures=True)
            for zygotes in self._started:
                zygotes.interrupt()
        self._pool.shutdown()
        for zygotes in self._started:
            zygotes.close()

    def submit(self, problem: Problem, program: str | None, program_id: str | None = None) -> Future[Judgement]:
        """The judgement to come of one program; None for a program is verdict `no_program`. Never raises for a bad program."""
        if not self.layers:
            raise JudgeError("the judge has not been entered, so its sandbox is not checked; use it as a context manager")
        if program is None:
            return renamed(self._pool.submit(self._judge, problem, None), program_id)
        verdict = self._verdicts.get(problem, program)
        if verdict is None:
            verdict = self._pool.submit(self._judge, problem, program)
            self._verdicts.put(problem, program, verdict)
        return renamed(verdict, program_id)

    def judge_many(self, items: Iterable[Item]) -> Iterator[Judgement]:
        """The judgements of (problem, program, program_id) in their order; takes a few ahead of what it gives."""
        return judged_in_order(items, self.submit, _LOOK_AHEAD * self.config.num_workers)

    def _zygotes(self) -> Zygotes:
        zygotes: Zygotes | None = getattr(self._local, "zygotes", None)
        if zygotes is None:
            zygotes = self._local.zygotes = Zygotes(self.config)
            self._started.append(zygotes)
        return zygotes

    def _check_layers(self) -> tuple[str, ...]:
        remove_leftovers()
        zygotes = self._zygotes()
        zygotes.for_programs()
        if self.config.sandbox == "none":
            logger.warning("sandbox none: programs run with the rights of this user")
        elif not {"landlock", "user_namespace"} & set(zygotes.layers):
            close_own_memory()
        return zygotes.layers

    def _judge(self, problem: Problem, program: str | None) -> Judgement:
        if program is None:
            return self._without_run(problem, Verdict.NO_PROGRAM, "")
        reason = ""
        for _ in range(_TRIES):
            try:
                return grade(self._zygotes(), self._preparations.get(problem), program)
            except ZygoteOutOfMemory:
                self._zygotes().close()
                return self._without_run(problem, Verdict.MEMORY_LIMIT_EXCEEDED, "brought the worker process over its limit")
            except (ZygoteDied, JudgeError, OSError) as error:
                reason = f"{type(error).__name__}: {error}"
                self._zygotes().close()
                if self._is_closing:
                    break
                logger.warning("a judge worker was lost (%s); a new one is started", reason)
            except Exception as error:
                logger.exception("the judge failed on a program of %s", problem.problem_id)
                self._zygotes().close()
                return self._without_run(problem, Verdict.JUDGE_ERROR, f"{type(error).__name__}: {error}")
        return self._without_run(problem, Verdict.JUDGE_ERROR, reason)

    def _without_run(self, problem: Problem, verdict: Verdict, detail: str) -> Judgement:
        total = 1 if problem.checker.kind == "asserts" else len(problem.tests)
        return Judgement(
            problem_id=problem.problem_id,
            verdict=verdict,
            tests_total=total,
            detail=" ".join(detail.split()),
            sandbox=self.layers,
        )


def judged_in_order(items: Iterable[Item], submit: Callable[..., Future[Judgement]], look_ahead: int) -> Iterator[Judgement]:
    """The judgements of (problem, program, program_id) in their order, with at most `look_ahead` of them on their way."""
    waiting: deque[Future[Judgement]] = deque()
    for item in items:
        waiting.append(submit(*item))
        while waiting and (waiting[0].done() or len(waiting) >= look_ahead):
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def open_judge(config: JudgeConfig) -> AnyJudge:
    """The judge that the settings name: the service at `url`, or one in this process. Enter it before use."""
    if config.url is None:
        return Judge(config)
    from microcoder_core.judge.client import JudgeClient

    return JudgeClient(config)
