"""How `kfp.local` starts a task here: a process group of its own, its log shown and kept, stopped when we are.

KFP's own runner prints a task's log with its own, asks no task to stop when it is stopped itself, and tells no exit code.
`own_processes` has it start tasks our way; everything else (inputs, outputs, cache, what depends on what) stays KFP's.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from kfp.dsl import component_factory
from kfp.local import graph_utils, status, subprocess_task_handler

GRACE_S = 120.0
"""How long a task that was asked to stop may save what it has, before it is killed."""
PREFIX = re.compile(r"^\d\d:\d\d:\d\d (error|failed): ")
"""Of the line in which a stage says why it could not end well."""
_PROGRESS_LINE = re.compile(r"\[[#-]+\] \d+/\d+ ")


@dataclass
class Stages:
    """The tasks of a run as they start and end.

    Args:
        titles: Title of each task by KFP's name for it, in the order to run them in where the pipeline leaves a choice.
        logs: Folder for the whole log of each task.
        inherited: Descriptors that tasks keep open, such as the run's lock.
    """

    titles: Mapping[str, str]
    logs: Path
    inherited: tuple[int, ...] = ()
    num_seen: int = 0
    """Tasks that have started, or were done before."""
    title: str = ""
    """The task that runs, or ran last."""
    exit_code: int = 0
    """Of the task that ran last."""
    last_line: str = ""
    """What it said last."""

    def run(self, command: list[str], environment: Mapping[str, str]) -> int:
        """Runs one task to its end, and answers its exit code."""
        component = _component(command)
        self.last_line = ""
        self.logs.mkdir(parents=True, exist_ok=True)
        screen = Screen(sys.stderr)
        screen.line(self._heading(component))
        with (self.logs / f"{component}.log").open("a", encoding="utf-8") as log:
            self.exit_code = self._stream(command, environment, log, screen)
        screen.end()
        return self.exit_code

    def skip(self, component: str) -> None:
        """Tells that a task was done in an earlier try."""
        Screen(sys.stderr).line(f"{self._heading(component)}: done before")

    def _heading(self, component: str) -> str:
        self.title = self.titles.get(component, component)
        self.num_seen += 1
        return f"[{self.num_seen}/{len(self.titles)}] {self.title}"

    def _stream(self, command: list[str], environment: Mapping[str, str], log: IO[str], screen: Screen) -> int:
        # KFP's executor logs to stdout, our stages to stderr: the one is kept, the other is kept and shown.
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={**os.environ, **environment},
            start_new_session=True,
            pass_fds=self.inherited,
        ) as process:
            assert process.stderr is not None
            try:
                self._show(process.stderr, log, screen)
                return process.wait()
            except KeyboardInterrupt:
                self._stop(process, log, screen)
                raise

    def _show(self, lines: IO[str], log: IO[str], screen: Screen) -> None:
        for line in lines:
            log.write(line)
            log.flush()
            if line.strip():
                self.last_line = line.rstrip()
                if not PREFIX.match(line):  # how it ended is said once more, with its title
                    screen.line(line.rstrip())

    def _stop(self, process: subprocess.Popen[str], log: IO[str], screen: Screen) -> None:
        """Asks the task to stop, shows what it still says, and waits until it is gone.

        By SIGTERM: a shell has SIGINT ignored in what it starts in the background, and tasks would inherit that.
        """
        assert process.stderr is not None
        screen.line(f"stopping {self.title} (once more: at once)")
        _signal(process, signal.SIGTERM)
        patience = threading.Timer(GRACE_S, _signal, (process, signal.SIGKILL))
        patience.start()
        try:
            self._show(process.stderr, log, screen)
        finally:
            patience.cancel()
            _signal(process, signal.SIGKILL)  # whatever of the group is left
            process.wait()
            screen.end()


class Screen:
    """Lines on stderr; on a terminal, a progress line is written over the one before it."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._overwrite = stream.isatty()
        self._open = False

    def line(self, text: str) -> None:
        """Shows one line."""
        progress = self._overwrite and _PROGRESS_LINE.search(text) is not None
        start = "\r\x1b[K" if self._open and progress else "\n" if self._open else ""
        self._stream.write(f"{start}{text}" if progress else f"{start}{text}\n")
        self._stream.flush()
        self._open = progress

    def end(self) -> None:
        """Ends a progress line that is still open."""
        if self._open:
            self._stream.write("\n")
            self._open = False


@contextlib.contextmanager
def own_processes(stages: Stages) -> Iterator[None]:
    """Has `kfp.local.SubprocessRunner` start every task through `stages`, in the order of its titles (KFP's own is a random one)."""
    their_handler, their_sort = subprocess_task_handler.SubprocessTaskHandler, graph_utils.topological_sort_tasks
    order = list(stages.titles)

    class StageProcess(their_handler):  # type: ignore[misc, valid-type]
        def run(self) -> Any:
            exit_code = stages.run(with_interpreter(self.full_command), self.env_vars)
            return status.Status.SUCCESS if exit_code == 0 else status.Status.FAILURE

    def sort(tasks: Mapping[str, Any]) -> list[str]:
        return list(their_sort({name: tasks[name] for name in sorted(tasks, key=order.index)}))

    subprocess_task_handler.SubprocessTaskHandler, graph_utils.topological_sort_tasks = StageProcess, sort
    try:
        yield
    finally:
        subprocess_task_handler.SubprocessTaskHandler, graph_utils.topological_sort_tasks = their_handler, their_sort


def with_interpreter(command: list[str]) -> list[str]:
    """The command with this interpreter in its shell script alone; KFP would put it into any path that holds `python3` too."""
    script = next(number for number, part in enumerate(command) if component_factory.EXECUTOR_MODULE in part)
    return [part.replace("python3", f'"{sys.executable}"') if number == script else part for number, part in enumerate(command)]


def _component(command: list[str]) -> str:
    """Name of the component that a command runs: the folder of its outputs is called so."""
    match = re.search(r'"outputFile":\s*"([^"]*)/executor_output\.json"', " ".join(command))
    return Path(match[1]).name if match else "task"


def _signal(process: subprocess.Popen[str], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
