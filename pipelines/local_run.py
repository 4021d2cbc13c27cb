"""The training pipeline on this machine: KFP's local runner, with our way to start, show and stop tasks."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from microcoder_core.errors import EXIT_CANCELLED, EXIT_SIGTERM, EXIT_USAGE, InputError, MicrocoderError, StageStopped
from microcoder_core.interrupt import stop_exit_code
from microcoder_core.storage.lock import locked_folder
from microcoder_core.tracking.events import Status
from pipelines.parameters import check_settings, declared_defaults
from pipelines.run_folder import RunFolder, RunRecord
from pipelines.stage_process import PREFIX, Stages, own_processes

_STOPPED = {
    EXIT_CANCELLED: EXIT_CANCELLED,
    130: EXIT_CANCELLED,
    -signal.SIGINT: EXIT_CANCELLED,
    EXIT_SIGTERM: EXIT_SIGTERM,
    -signal.SIGTERM: EXIT_SIGTERM,
}
"""Exit code of a task that was stopped -> ours."""


class TaskFailedError(MicrocoderError):
    """A task of the pipeline failed."""


def run_training(root: Path, parameters: Mapping[str, Any], *, resume: bool) -> dict[str, Any]:
    """The output artifacts of the training pipeline, run in `root`.

    Args:
        resume: Go on with the run in `root`: finished tasks are not repeated, training goes on from its newest checkpoint.

    Raises:
        InputError: Bad parameters, or `root` holds something else.
        TaskFailedError: A task failed.
        StageStopped: Stopped by Ctrl-C or SIGTERM, after the task at work saved what it had.
    """
    from pipelines.training import NAME, TITLES

    check_settings(parameters, declared_defaults())
    folder = RunFolder(root.absolute())
    with locked_folder(folder.root) as lock:
        record = folder.resume(parameters) if resume else folder.start(NAME, parameters)
        with _environment(folder, record), _closing(record) as ending:
            stages = Stages(TITLES, folder.root / "logs", inherited=(lock,))
            try:
                return _run(folder, record, stages)
            except KeyboardInterrupt as stop:
                ending.status = "KILLED"
                raise StageStopped(_how_to_go_on("stopped", root), stop_exit_code(stop)) from None
            except RuntimeError as error:
                if stages.exit_code == 0:
                    raise
                ending.status = "KILLED" if stages.exit_code in _STOPPED else "FAILED"
                raise _failure(stages, root) from error


def _run(folder: RunFolder, record: RunRecord, stages: Stages) -> dict[str, Any]:
    from kfp import local

    from pipelines.training import training

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Task '.*': settings \['display_name'\] have no effect", UserWarning)
        warnings.filterwarnings("ignore", "You may be attemping to run a task that uses custom or non-Python base image", RuntimeWarning)
        local.init(
            runner=local.SubprocessRunner(use_venv=False),
            pipeline_root=str(folder.root / "artifacts"),
            workspace_root=str(folder.root / "work" / "scratch"),  # removed after every run: nothing else may lie there
            raise_on_error=True,
            enable_caching=True,
            cache_root=str(folder.root / "cache"),
        )
        with own_processes(stages), _quiet_kfp(stages):
            return dict(training(**record.parameters).outputs)


@contextlib.contextmanager
def _environment(folder: RunFolder, record: RunRecord) -> Iterator[None]:
    """What the tasks find in their environment."""
    before = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="microcoder-") as scratch:  # KFP leaves a folder there for every task
        os.environ |= {"MICROCODER_PIPELINE_RUN": record.pipeline_run, "MICROCODER_WORK": str(folder.root / "work"), "TMPDIR": scratch}
        os.environ.setdefault("MLFLOW_TRACKING_URI", f"sqlite:///{folder.root / 'mlflow.db'}")
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        os.environ.setdefault("TQDM_DISABLE", "1")  # libraries' own bars, which are lines in a log
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)


@contextlib.contextmanager
def _quiet_kfp(stages: Stages) -> Iterator[None]:
    """Leaves of KFP's own log the warnings and errors, on stderr: it tells each step and each path, on stdout."""

    def keep(record: logging.LogRecord) -> bool:  # KFP logs through the root logger, which nothing of ours does
        hit = re.match(r"Task (\S+) cache hit", record.getMessage())
        if hit:
            stages.skip(hit[1])
        return record.levelno >= logging.WARNING and "finished with status" not in record.getMessage()  # which we say ourselves

    root = logging.getLogger()
    level = root.level
    root.addFilter(keep)
    root.setLevel(min(level, logging.INFO))
    try:
        with contextlib.redirect_stdout(_WithoutRules()):
            yield
    finally:
        root.removeFilter(keep)
        root.setLevel(level)


class _WithoutRules:
    """Stderr without blank lines and horizontal rules."""

    def write(self, text: str) -> int:
        if text.strip("- \n"):
            sys.stderr.write(text if text.endswith("\n") else f"{text}\n")
        return len(text)

    def flush(self) -> None:
        sys.stderr.flush()


def _failure(stages: Stages, root: Path) -> Exception:
    last = PREFIX.sub("", stages.last_line)
    if stages.exit_code == EXIT_USAGE:
        return InputError(f"{stages.title}: {last}")
    if stages.exit_code in _STOPPED:
        return StageStopped(_how_to_go_on(f"{stages.title} was stopped", root), _STOPPED[stages.exit_code])
    logs = f"the whole log is in {root / 'logs'}"
    return TaskFailedError(_how_to_go_on(f"{stages.title} (exit code {stages.exit_code}): {last}; {logs}", root))


def _how_to_go_on(what: str, root: Path) -> str:
    return f"{what}; go on with: microcoder pipeline run --local --out {root} --resume"


@dataclass
class _Ending:
    status: Status = "FAILED"


@contextlib.contextmanager
def _closing(record: RunRecord) -> Iterator[_Ending]:
    """Ends the parent run where the block fails, with the status that it was given; else the last task has ended it."""
    from microcoder_core.tracking.pipeline_run import close_pipeline_run

    ending = _Ending()
    try:
        yield ending
    except BaseException:
        close_pipeline_run(record.pipeline_run, ending.status)
        raise
