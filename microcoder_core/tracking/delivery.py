"""Sends events from a thread of its own, so that a slow or absent server slows nobody; what was not sent is handed back."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from microcoder_core.tracking.events import Event

logger = logging.getLogger(__name__)

_GATHER_S = 0.3
"""Wait for more events after the first, so that they go in one request."""
_LOOK_AHEAD = 500
_FIRST_RETRY_S = 1.0
_LONGEST_RETRY_S = 30.0
_LAST_ATTEMPT_S = 3.0
"""Longest wait at the end for a server that was away at the last attempt."""


class Delivery:
    """Events in order through `send`, which answers how many of the first ones it has sent and raises where none could be.

    Args:
        patience_s: Longest wait at the end without any progress of a server that is there.
    """

    def __init__(self, send: Callable[[Sequence[Event]], int], patience_s: float) -> None:
        self._send = send
        self._patience_s = patience_s
        self._pending: list[Event] = []
        self._changed = threading.Condition()
        self._closing = self._abandoned = False
        self._failures = 0
        self._progress = 0
        self.error: Exception | None = None
        """Why the last attempt failed."""
        self._thread = threading.Thread(target=self._run, name="tracking", daemon=True)
        self._thread.start()

    def put(self, event: Event) -> None:
        """Queues an event; never waits."""
        with self._changed:
            self._pending.append(event)
            self._changed.notify_all()

    def wait_for_first(self) -> None:
        """Waits until something was sent, or the first attempt has failed, or patience has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._progress or self._failures or self._abandoned, timeout=self._patience_s)

    def drain(self) -> None:
        """Lets the thread send what it can in time, and end."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        patience_s = _LAST_ATTEMPT_S if self._failures else self._patience_s
        seen, until = self._progress, time.monotonic() + patience_s
        while self._thread.is_alive() and time.monotonic() < until:
            self._thread.join(timeout=0.02)
            if self._progress != seen:
                seen, until = self._progress, time.monotonic() + self._patience_s

    def take_unsent(self) -> list[Event]:
        """Gives the thread up; returns the events that it has not sent, in order."""
        with self._changed:
            self._abandoned = True
            left, self._pending = self._pending, []
            self._changed.notify_all()
        return left

    def _run(self) -> None:
        while (events := self._next()) and not self._abandoned:
            try:
                sent = self._send(events)
            except Exception as error:  # whatever the client raises: the events stay, the thread goes on
                if self._closing or not self._back_off(error):
                    self.error = error
                    return
                continue
            with self._changed:
                if not self._abandoned:
                    del self._pending[:sent]
                if self._failures:
                    logger.info("tracking: the server answers again")
                self._failures = 0
                self._progress += 1
                self._changed.notify_all()

    def _next(self) -> list[Event]:
        """The pending events, once there are any; none when all are sent and the end has come."""
        with self._changed:
            self._changed.wait_for(lambda: self._pending or self._closing)
            self._changed.wait_for(lambda: self._closing, timeout=_GATHER_S)
            return self._pending[:_LOOK_AHEAD]

    def _back_off(self, error: Exception) -> bool:
        """Waits before the next attempt, or until the end has come; answers whether there is one."""
        self.error = error
        if not self._failures:
            logger.warning("tracking: the server cannot be reached, retrying in the background (%s)", " ".join(str(error).split())[:200])
        delay_s = min(_FIRST_RETRY_S * 2 ** min(self._failures, 10), _LONGEST_RETRY_S)
        with self._changed:
            self._failures += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._closing, timeout=delay_s)
            return not self._abandoned
