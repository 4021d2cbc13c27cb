"""Turns SIGTERM into an exception, as Python does with SIGINT, so that a run can save what it has."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

EXIT_CANCELLED = 3
EXIT_SIGTERM = 143


class Terminated(BaseException):
    """SIGTERM arrived. A BaseException: no `except Exception` on the way may swallow it."""


@contextlib.contextmanager
def sigterm_raises() -> Iterator[None]:
    """Inside, SIGTERM raises `Terminated` in the main thread; does nothing in other threads."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _raise)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def signals_ignored() -> Iterator[None]:
    """Inside, neither SIGINT nor SIGTERM disturbs: for the saving that they asked for."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _raise(number: int, frame: FrameType | None) -> None:
    raise Terminated
