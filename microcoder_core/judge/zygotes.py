"""The worker processes of one thread: one for programs and, where a problem brings code of its own, one for that code.

They are two because what a process once held, its children can find: a program must never share one with a checker's code.
"""

from __future__ import annotations

from microcoder_core.judge.config import JudgeConfig
from microcoder_core.judge.process import LEVELS, ZygoteProcess


class Zygotes:
    """Starts each process when it is first needed, and again after it was lost."""

    def __init__(self, config: JudgeConfig) -> None:
        self._config = config
        self._programs: ZygoteProcess | None = None
        self._checkers: ZygoteProcess | None = None
        self.layers: tuple[str, ...] = ()

    def for_programs(self) -> ZygoteProcess:
        """The process whose children run programs."""
        if self._programs is not None and self._programs.is_soiled:
            self._programs.close()
            self._programs = None
        if self._programs is None:
            self._programs = self._start()
            self.layers = (("none",) if self._config.sandbox == "none" else ()) + self._programs.layers
        return self._programs

    def for_checkers(self) -> ZygoteProcess:
        """The process whose children run checkers and asserts."""
        if self._checkers is None:
            self._checkers = self._start()
        return self._checkers

    def _start(self) -> ZygoteProcess:
        known = self._programs or self._checkers
        return ZygoteProcess(self._config, (known.level,) if known else LEVELS)

    def interrupt(self) -> None:
        """Ends what runs, from any thread."""
        for process in (self._programs, self._checkers):
            if process is not None:
                process.interrupt()

    def close(self) -> None:
        """Ends both; the next use starts them anew."""
        for process in (self._programs, self._checkers):
            if process is not None:
                process.close()
        self._programs = self._checkers = None
