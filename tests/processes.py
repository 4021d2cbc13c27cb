"""Processes for tests."""

import os
import subprocess
from pathlib import Path

from microcoder_core.judge.cgroups import groups_left


def pid_of_an_ended_process() -> int:
    """The identifier of a process that is gone."""
    with subprocess.Popen(["true"]) as process:
        process.wait()
        return process.pid


def workers_of(pid: int) -> list[int]:
    """Identifiers of the judge's worker processes, and of what they forked, that the process `pid` started and that are alive."""
    return [int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit() and _is_worker(folder, pid)]


def _is_worker(folder: Path, pid: int) -> bool:
    try:
        command = (folder / "cmdline").read_bytes()
    except OSError:
        return False
    return b"sandbox.zygote" in command and b'"parent": %d,' % pid in command


def groups_of_this_process() -> set[str]:
    """The control groups of this process's judges."""
    return {str(group) for group in groups_left() if f"-{os.getpid()}-" in group.name}
