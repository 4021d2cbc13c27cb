"""Killed at any moment, twenty times, and resumed: the weights are the undisturbed run's, bit for bit."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_twenty_kills_anywhere_change_no_bit(tmp_path: Path) -> None:
    seed = os.getpid()
    command = [sys.executable, "tests/grpo/killed_runs.py", str(tmp_path / "work"), str(seed)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert ran.returncode == 0, f"seed {seed}: {ran.stdout}\n{ran.stderr[-2000:]}"
    assert len(ran.stdout.splitlines()) == 20
