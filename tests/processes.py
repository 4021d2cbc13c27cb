"""Processes for tests."""

import subprocess


def pid_of_an_ended_process() -> int:
    """The identifier of a process that is gone."""
    with subprocess.Popen(["true"]) as process:
        process.wait()
        return process.pid
