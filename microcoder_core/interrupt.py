"""Signals that ask a run to stop: SIGTERM raises as SIGINT does in Python, and both can wait while work must not be cut in two."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from microcoder_core.errors import EXIT_CANCELLED, EXIT_SIGTERM

logger = logging.getLogger(__name__)

_STOPPING = (signal.SIGINT, signal.SIGTERM)


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived: whatever gives way to Ctrl-C gives way to it."""


def stop_exit_code(stop: BaseException | None) -> int:
    """The exit code to end with after `stop`."""
    return EXIT_SIGTERM if isinstance(stop, Terminated) else EXIT_CANCELLED


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
def stop_waits(what: str, agree: Callable[[int], int] = lambda number: number) -> Iterator[None]:
    """Inside, a first SIGINT or SIGTERM takes effect at the end of the block; a second one does so at once.

    Args:
        what: What is finished first, for the log.
        agree: From the number of the signal that arrived here, 0 for none, to that which takes effect: what several processes agree on.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept: list[int] = []

    def keep(number: int, frame: FrameType | None) -> None:
        if kept:
            _raise(number, frame)
        kept.append(number)
        logger.info("stopping after %s (once more: at once)", what)

    heeded = [number for number in _STOPPING if signal.getsignal(number) is not signal.SIG_IGN]  # a background job ignores SIGINT
    before = {number: signal.signal(number, keep) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if agreed := agree(kept[0] if kept else 0):
        _raise(agreed, None)


@contextlib.contextmanager
def signals_ignored() -> Iterator[None]:
    """Inside, neither SIGINT nor SIGTERM disturbs: for the saving that they asked for."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in _STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _raise(number: int, frame: FrameType | None) -> None:
    raise Terminated if number == signal.SIGTERM else KeyboardInterrupt
