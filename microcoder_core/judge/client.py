"""The judge service from the caller's side: the same interface as the judge in this process.

Programs go out in batches over a few connections, and answers come back as they are there. Where the service dies, is full or falls silent,
what has no answer yet is asked again, after a pause that grows and is random; what has one is never asked again.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import socket
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import httpx
from pydantic import ValidationError
from tenacity import RetryCallState, Retrying, retry_if_exception_type, sleep_using_event, wait_random_exponential

from microcoder_core.errors import JudgeError
from microcoder_core.judge.config import SETTINGS_HEADER, TOKEN_VARIABLE, JudgeConfig
from microcoder_core.judge.judge import Item, judged_in_order
from microcoder_core.records import Judgement, Problem, Verdict, first_complaint

logger = logging.getLogger(__name__)

_CONNECTIONS = 4
_MOST_PROGRAMS = 64
"""Programs in a request at most. Chosen: enough that a request costs little beside its programs."""
_LOOK_AHEAD = 2 * _CONNECTIONS * _MOST_PROGRAMS
_KNOWN_PROBLEMS = 64
_START_PATIENCE_S = 60.0
_TIMEOUTS = httpx.Timeout(connect=10.0, read=30.0, write=60.0, pool=None)
"""The service sends a line at least every few seconds."""
_PAUSE = wait_random_exponential(multiplier=0.5, max=30.0)
_SOME_PROGRAM_S_FAULT = (httpx.codes.REQUEST_ENTITY_TOO_LARGE, httpx.codes.UNPROCESSABLE_ENTITY)
_SENT_FIELDS = {"problem_id", "statement", "form", "entry_point", "tests", "checker", "time_limit_s", "memory_limit_mib"}


class _Unanswered(Exception):
    """The service did not answer all: ask again.

    Args:
        retry_after_s: What it asked to wait for.
        is_busy: Whether it is well and has no room.
    """

    def __init__(self, message: str, retry_after_s: float = 0.0, is_busy: bool = False) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.is_busy = is_busy


class _Refused(Exception):
    """The service will not take the request, however often it is sent."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(eq=False, slots=True)
class _Asked:
    """A program on its way."""

    problem: Problem
    program: str | None
    program_id: str | None
    verdict: Future[Judgement] = field(default_factory=Future)


class JudgeClient:
    """Has programs judged by a service. Use as a context manager, as `Judge`.

    Args:
        config: Settings with `url`; those that verdicts depend on must be the service's.

    Raises:
        JudgeError: On entering: no service there within a minute, another token, other settings.
    """

    def __init__(self, config: JudgeConfig) -> None:
        if config.url is None:
            raise ValueError("a client needs a url")
        self.config = config
        self.layers: tuple[str, ...] = ()
        token = os.environ.get(TOKEN_VARIABLE)
        self._http = httpx.Client(
            base_url=config.url,
            headers={SETTINGS_HEADER: config.verdict_fingerprint()} | ({"Authorization": f"Bearer {token}"} if token else {}),
            timeout=_TIMEOUTS,
            limits=httpx.Limits(max_connections=_CONNECTIONS + 1),
        )
        self._texts = _ProblemTexts()
        self._waiting: deque[_Asked] = deque()
        self._connections: set[socket.socket] = set()
        self._changed = threading.Condition()
        self._is_closing = False
        self._is_abandoned = threading.Event()
        self._most_programs = _MOST_PROGRAMS
        self._most_bytes = 8 << 20
        self._threads = [threading.Thread(target=self._send, name=f"judge client {n}", daemon=True) for n in range(_CONNECTIONS)]

    def __enter__(self) -> Self:
        try:
            info = self._info()
            self._check_settings(info["settings"])
            self.layers = tuple(info["layers"])
            self._most_programs = min(_MOST_PROGRAMS, info["max_programs"])
            self._most_bytes = min(self._most_bytes, info["max_request_bytes"])
        except (KeyError, TypeError, AttributeError) as error:
            self._http.close()
            raise JudgeError(f"judge.url: what answers at {self.config.url} is no judge service of this version ({error!r})") from None
        except BaseException:
            self._http.close()
            raise
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close(abandon=error is not None)

    def close(self, abandon: bool = False) -> None:
        """Ends the connections, after what was submitted is answered.

        Args:
            abandon: Whether to leave what has no answer.
        """
        with self._changed:
            self._is_closing = True
            if abandon:
                self._is_abandoned.set()
                for asked in self._waiting:
                    asked.verdict.cancel()
                self._waiting.clear()
                for connection in self._connections:
                    with contextlib.suppress(OSError):
                        connection.shutdown(socket.SHUT_RDWR)
            self._changed.notify_all()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()
        self._http.close()

    def submit(self, problem: Problem, program: str | None, program_id: str | None = None) -> Future[Judgement]:
        """The judgement to come of one program; None for a program is verdict `no_program`. Never raises for a bad program.

        A service that stays away for `patience_s` makes it verdict `judge_error`.
        """
        if not self.layers:
            raise JudgeError("the judge client has not been entered; use it as a context manager")
        asked = _Asked(problem, program, program_id)
        with self._changed:
            if self._is_closing:
                raise JudgeError("the judge client is closed")
            self._waiting.append(asked)
            self._changed.notify()
        return asked.verdict

    def judge_many(self, items: Iterable[Item]) -> Iterator[Judgement]:
        """The judgements of (problem, program, program_id) in their order; takes a few ahead of what it gives."""
        return judged_in_order(items, self.submit, _LOOK_AHEAD)

    def _info(self) -> dict[str, Any]:
        patience = _Patience(min(_START_PATIENCE_S, self.config.patience_s))
        try:
            for attempt in self._retrying(patience):
                with attempt, _transport_errors():
                    response = self._http.get("/v1/info")
                    _check_status(response)
                    info: dict[str, Any] = response.json()
        except _Unanswered as error:
            raise JudgeError(
                f"judge.url: no judge service answers at {self.config.url} ({error}); start one with `microcoder judge serve`"
            ) from None
        except (_Refused, ValueError) as error:
            hint = f"; set {TOKEN_VARIABLE}" if getattr(error, "status", 0) == httpx.codes.UNAUTHORIZED else ""
            raise JudgeError(f"judge.url: {self.config.url} is no judge service, or refuses us ({error}){hint}") from None
        return info

    def _check_settings(self, theirs: dict[str, Any]) -> None:
        for name, ours in self.config.verdict_settings().items():
            if theirs.get(name) != ours:
                raise JudgeError(
                    f"judge.{name}: the service at {self.config.url} judges with {theirs.get(name)!r}, asked for is {ours!r}; "
                    "start it with the same settings, or ask for its own"
                )

    def _retrying(self, patience: _Patience) -> Retrying:
        def pause(state: RetryCallState) -> float:
            error = state.outcome.exception() if state.outcome else None
            if getattr(error, "is_busy", False):  # a sign of life
                patience.renew()
            return max(_PAUSE(state), getattr(error, "retry_after_s", 0.0))

        def say(state: RetryCallState) -> None:
            error = state.outcome.exception() if state.outcome else None
            logger.log(
                logging.INFO if getattr(error, "is_busy", False) else logging.WARNING,
                "the judge service at %s: %s; asking again in %.1f s, for %.0f s more",
                self.config.url,
                error,
                state.next_action.sleep if state.next_action else 0.0,
                patience.left_s,
            )

        return Retrying(
            retry=retry_if_exception_type(_Unanswered),
            wait=pause,
            stop=lambda _: patience.left_s <= 0 or self._is_abandoned.is_set(),
            sleep=sleep_using_event(self._is_abandoned),
            before_sleep=say,
            reraise=True,
        )

    def _send(self) -> None:
        """In a thread of its own: takes what waits, a batch at a time."""
        while batch := self._next_batch():
            try:
                self._deliver(batch)
            except Exception as error:  # nobody may wait for ever for a future
                logger.exception("the judge client failed")
                self._fail(batch, f"{type(error).__name__}: {error}")

    def _next_batch(self) -> list[_Asked]:
        """What to send next; empty when there will be no more."""
        batch: list[_Asked] = []
        with self._changed:
            while not batch:
                self._changed.wait_for(lambda: self._waiting or self._is_closing)
                if not self._waiting:
                    return []
                batch = [asked for asked in self._taken() if asked.verdict.set_running_or_notify_cancel()]
        return batch

    def _taken(self) -> list[_Asked]:
        """This connection's share of what waits, as far as it fits into a request."""
        most = min(self._most_programs, math.ceil(len(self._waiting) / _CONNECTIONS))
        taken: list[_Asked] = []
        size = 0
        while self._waiting and len(taken) < most:
            try:
                size += self._texts.size(self._waiting[0].problem) + len(self._waiting[0].program or "")
            except ValueError as error:  # such as an integer of more digits than Python writes
                self._fail([self._waiting.popleft()], f"the problem cannot be sent: {error}")
                continue
            if taken and size > self._most_bytes // 2:  # what is escaped grows
                break
            taken.append(self._waiting.popleft())
        return taken

    def _deliver(self, batch: Sequence[_Asked]) -> None:
        """Asks until every program of the batch has its verdict."""
        pending = list(batch)
        patience = _Patience(self.config.patience_s)
        try:
            for attempt in self._retrying(patience):
                with attempt, _transport_errors():
                    self._post(pending, patience)
        except _Unanswered as error:
            if self._is_abandoned.is_set():
                self._fail(pending, "abandoned")
            else:
                self._fail(pending, f"the judge service at {self.config.url} stayed away for {self.config.patience_s:g} s ({error})")
        except _Refused as error:
            if len(pending) > 1 and error.status in _SOME_PROGRAM_S_FAULT:
                middle = len(pending) // 2
                self._deliver(pending[:middle])
                self._deliver(pending[middle:])
            else:
                self._fail(pending, f"the judge service refused it: {error}")

    def _post(self, pending: list[_Asked], patience: _Patience) -> None:
        """Asks once, and takes out of `pending` what is answered. Raises _Unanswered where something is left."""
        asked = list(pending)
        with self._http.stream("POST", "/v1/batch", content=self._body(asked), headers={"Content-Type": "application/json"}) as response:
            _check_status(response)
            with self._cut_short_when_abandoned(response):
                for line in response.iter_lines():
                    patience.renew()
                    if not line.strip():
                        continue
                    index, judgement = _answer(line)
                    if 0 <= index < len(asked) and asked[index] in pending:
                        if (judgement.problem_id, judgement.program_id) != (asked[index].problem.problem_id, asked[index].program_id):
                            raise _Unanswered("an answer to another question")
                        pending.remove(asked[index])
                        asked[index].verdict.set_result(judgement)
        if pending:
            raise _Unanswered(f"ended with {len(pending)} answers missing")

    @contextlib.contextmanager
    def _cut_short_when_abandoned(self, response: httpx.Response) -> Iterator[None]:
        """Inside, abandoning ends the connection, even while nothing comes over it."""
        connection = response.extensions["network_stream"].get_extra_info("socket")
        with self._changed:
            self._connections.add(connection)
        try:
            yield
        finally:
            with self._changed:
                self._connections.discard(connection)

    def _body(self, batch: Sequence[_Asked]) -> bytes:
        numbers: dict[int, int] = {}
        texts: list[str] = []
        for asked in batch:
            if id(asked.problem) not in numbers:
                numbers[id(asked.problem)] = len(texts)
                texts.append(self._texts.get(asked.problem))
        programs = [{"problem": numbers[id(one.problem)], "program": one.program, "program_id": one.program_id} for one in batch]
        return f'{{"problems": [{", ".join(texts)}], "programs": {json.dumps(programs)}}}'.encode()

    def _fail(self, batch: Iterable[_Asked], reason: str) -> None:
        for asked in batch:
            if not asked.verdict.done():
                total = 1 if asked.problem.checker.kind == "asserts" else len(asked.problem.tests)
                asked.verdict.set_result(
                    Judgement(
                        problem_id=asked.problem.problem_id,
                        program_id=asked.program_id,
                        verdict=Verdict.JUDGE_ERROR,
                        tests_total=total,
                        detail=" ".join(reason.split()),
                        sandbox=self.layers,
                    )
                )


class _Patience:
    """How long to go on without any sign of life."""

    def __init__(self, total_s: float) -> None:
        self._total_s = total_s
        self.renew()

    def renew(self) -> None:
        self._until = time.monotonic() + self._total_s

    @property
    def left_s(self) -> float:
        return self._until - time.monotonic()


class _ProblemTexts:
    """The last problems as JSON, as they are sent."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, tuple[Problem, str]] = OrderedDict()
        self._lock = threading.Lock()

    def size(self, problem: Problem) -> int:
        return len(self.get(problem))

    def get(self, problem: Problem) -> str:
        with self._lock:
            kept = self._kept.get(id(problem))  # the entry holds the problem, so that its id stays its own
            if kept:
                self._kept.move_to_end(id(problem))
                return kept[1]
            text = json.dumps(problem.model_dump(mode="json", include=_SENT_FIELDS))
            self._kept[id(problem)] = (problem, text)
            if len(self._kept) > _KNOWN_PROBLEMS:
                self._kept.popitem(last=False)
            return text


@contextlib.contextmanager
def _transport_errors() -> Iterator[None]:
    """Inside, what breaks a connection is `_Unanswered`."""
    try:
        yield
    except (httpx.HTTPError, httpx.StreamError) as error:
        raise _Unanswered(f"{type(error).__name__}: {error}") from None
    except RuntimeError as error:  # the client was closed meanwhile
        raise _Unanswered(str(error)) from None


def _check_status(response: httpx.Response) -> None:
    """Raises _Unanswered or _Refused for what is no success."""
    if response.is_success:
        return
    response.read()
    try:
        message = str(response.json()["error"])
    except (ValueError, KeyError, TypeError):
        message = f"status {response.status_code}"
    if response.status_code == httpx.codes.TOO_MANY_REQUESTS or response.is_server_error:
        waiting = response.headers.get("retry-after", "")
        is_busy = response.status_code == httpx.codes.TOO_MANY_REQUESTS
        raise _Unanswered(message, float(waiting) if waiting.isdigit() else 0.0, is_busy)
    raise _Refused(response.status_code, message)


def _answer(line: str) -> tuple[int, Judgement]:
    try:
        row = json.loads(line)
        return int(row["index"]), Judgement.model_validate(row["judgement"])
    except ValidationError as error:
        raise _Unanswered(f"an answer that is none ({first_complaint(error)})") from None
    except (ValueError, KeyError, TypeError):
        raise _Unanswered("an answer that is none") from None
