"""Signals that ask a run to stop: SIGTERM raises as SIGINT does in Python, and both can wait while work must not be cut in two."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

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
def stop_waits(what: str) -> Iterator[None]:
    """Inside, a first SIGINT or SIGTERM takes effect at the end of the block; a second one does so at once.

    Args:
        what: What is finished first, for the log.
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
    if kept:
        raise_stop(kept[0])


@contextlib.contextmanager
def signals_noted(log: str) -> Iterator[list[int]]:
    """Inside, SIGINT and SIGTERM do nothing but join the list, for several processes that must agree on when they stop.

    Args:
        log: What is said when the first one arrives.
    """
    noted: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield noted
        return

    def note(number: int, frame: FrameType | None) -> None:
        if not noted:
            logger.info(log)
        noted.append(number)

    heeded = [number for number in _STOPPING if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, note) for number in heeded}
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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


def raise_stop(number: int) -> NoReturn:
    """Raises what the signal `number` stands for."""
    raise Terminated if number == signal.SIGTERM else KeyboardInterrupt


def _raise(number: int, frame: FrameType | None) -> None:
    raise_stop(number)
