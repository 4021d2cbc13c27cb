"""How many programs the service has taken on, and whose turn it is."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import Self

from microcoder_core.judge.judge import Judge
from microcoder_core.judge.service.metrics import Metrics
from microcoder_core.judge.service.requests import Item
from microcoder_core.records import Judgement

_AHEAD = 2
"""Programs handed to the judge per worker: one that runs, one that is next."""
_LONGEST_WAIT_S = 60
_FIRST_GUESS_S = 0.01
_SMOOTHING = 0.05


class Full(Exception):
    """There is no room for a request now.

    Args:
        retry_after_s: When there may be.
    """

    def __init__(self, retry_after_s: int) -> None:
        super().__init__(f"the queue is full; try again in {retry_after_s} s")
        self.retry_after_s = retry_after_s


class Queue:
    """Lets requests in up to a number of programs, and takes their programs in turns: one large request does not hold up a small one.

    Used from one event loop alone.
    """

    def __init__(self, judge: Judge, max_programs: int, metrics: Metrics) -> None:
        self.judge = judge
        self.max_programs = max_programs
        self.waiting = 0
        """Programs taken and not yet answered."""
        self.cut_short = 0
        """Programs that will have no answer since the server stopped."""
        self.turns = asyncio.Semaphore(_AHEAD * judge.config.num_workers)
        self._metrics = metrics
        self._seconds_a_program = _FIRST_GUESS_S

    def take(self, items: Sequence[Item]) -> Work:
        """Begins with the programs of a request, until the context manager that this returns is left. Raises Full."""
        if self.waiting + len(items) > self.max_programs:
            raise Full(min(_LONGEST_WAIT_S, max(1, math.ceil(self.waiting * self._seconds_a_program))))
        self.count(len(items))
        return Work(self, items)

    def count(self, change: int) -> None:
        """Takes note that so many programs more, or fewer, wait."""
        self.waiting += change
        self._metrics.waiting.set(self.waiting)

    def answered(self, judgement: Judgement, seconds: float) -> None:
        """Takes note of an answer, and how long it took from its turn on."""
        self.count(-1)
        self._metrics.judged(judgement, seconds)
        share = seconds / (_AHEAD * self.judge.config.num_workers)
        self._seconds_a_program += _SMOOTHING * (share - self._seconds_a_program)


class Work:
    """The programs of one request."""

    def __init__(self, queue: Queue, items: Sequence[Item]) -> None:
        self._queue = queue
        self._items = items
        self._unanswered = len(items)
        self._is_closed = False
        self._answers: asyncio.Queue[tuple[int, Judgement]] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._feeder = asyncio.create_task(self._feed())

    def __len__(self) -> int:
        return len(self._items)

    async def next(self, timeout_s: float) -> tuple[int, Judgement] | None:
        """The next answer, whichever comes first, with the index of its program; None where none came in `timeout_s`."""
        try:
            return await asyncio.wait_for(self._answers.get(), timeout_s)
        except TimeoutError:
            return None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Leaves what has not had its turn. What runs goes on: the judge remembers its verdict for whoever asks again."""
        self._is_closed = True
        self._feeder.cancel()
        self._queue.count(-self._unanswered)
        if kind is asyncio.CancelledError:  # by the server that stops; a caller that leaves ends the work in another way
            self._queue.cut_short += self._unanswered

    async def _feed(self) -> None:
        for index, item in enumerate(self._items):
            await self._queue.turns.acquire()
            verdict = self._queue.judge.submit(*item)
            verdict.add_done_callback(partial(self._pass_on, index, time.monotonic()))

    def _pass_on(self, index: int, started: float, verdict: Future[Judgement]) -> None:
        """In a thread of the judge."""
        with contextlib.suppress(RuntimeError):  # the loop has ended, and with it all requests
            self._loop.call_soon_threadsafe(self._take_in, index, started, verdict)

    def _take_in(self, index: int, started: float, verdict: Future[Judgement]) -> None:
        self._queue.turns.release()
        if self._is_closed or verdict.cancelled():
            return
        judgement = verdict.result()
        self._unanswered -= 1
        self._queue.answered(judgement, time.monotonic() - started)
        self._answers.put_nowait((index, judgement))
