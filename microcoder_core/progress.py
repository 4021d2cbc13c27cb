"""Progress on stderr: a live bar on a terminal, a line every few seconds elsewhere (a pod's log, a CI job)."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Self, TypeVar

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
_LINE_EVERY_S = 5.0


class Progress:
    """Counts to `total`, with the time left and a note. Use as a context manager.

    Args:
        is_shown: Whether anything is written; of several processes one shows the progress of all.
    """

    def __init__(self, description: str, total: int, *, is_shown: bool = True) -> None:
        self._is_shown = is_shown
        self.description = description
        self.total = total
        self.done = 0
        self._bar: Any = None

    def __enter__(self) -> Self:
        self._start = self._last_line = time.monotonic()
        self._done_at_start = self.done
        if self._is_shown and sys.stderr.isatty():
            self._bar = _live_bar()
            self._bar.start()
            self._task = self._bar.add_task(self.description, total=self.total, completed=self.done, note="")
        return self

    def resume_at(self, done: int) -> None:
        """Counts `done` as done before this run, so that they do not enter the time left."""
        self.done = self._done_at_start = done
        if self._bar:
            self._bar.update(self._task, completed=done)

    def advance(self, count: int = 1, note: str = "") -> None:
        """Counts `count` more as done."""
        self.done += count
        if self._bar:
            self._bar.update(self._task, completed=self.done, note=note)
        elif self._is_shown and (time.monotonic() - self._last_line >= _LINE_EVERY_S or self.done == self.total):
            self._last_line = time.monotonic()
            logger.info("%s", self._line(note))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar:
            self._bar.stop()

    def _line(self, note: str) -> str:
        ran = self.done - self._done_at_start
        left_s = (time.monotonic() - self._start) / ran * (self.total - self.done) if ran else 0.0
        width = 20
        filled = width * self.done // max(self.total, 1)
        bar = "#" * filled + "-" * (width - filled)
        left = f"{int(left_s) // 60}:{int(left_s) % 60:02d} left" if self.done < self.total else "done"
        return f"{self.description} [{bar}] {self.done}/{self.total} {left} {note}".rstrip()


def track(items: Iterable[Item], description: str, total: int) -> Iterator[Item]:
    """`items`, counted as they are taken."""
    with Progress(description, total) as progress:
        for item in items:
            yield item
            progress.advance()


def _live_bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    return RichProgress(*columns, console=Console(stderr=True))
