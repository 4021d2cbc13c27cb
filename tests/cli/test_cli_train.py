"""`microcoder train` as its users' machines treat it: killed at any moment, and started again."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

MAIN = "import sys; from microcoder_core.cli.main import main; main(sys.argv[1:])"
SETTINGS = ("max_steps=10", "rollout.train_batch_size=4", "rollout.group_size=4", "optimizer.mini_batch_size=2", "checkpoint.every_steps=3")


def start(drills: Path, out: Path, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", MAIN, "train", "--model", "nano", "--problems", str(drills), "--out", str(out)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MICROCODER_TRACKING": "off"}
    return subprocess.Popen([*command, "--preset", "microcoder", "--preset", "nano", *SETTINGS, *options], env=environment)


@pytest.mark.slow
def test_killed_at_three_random_steps_and_resumed_gives_the_same_weights(drills: Path, tmp_path: Path) -> None:
    assert start(drills, tmp_path / "whole").wait() == 0
    draw = random.Random(os.getpid())
    metrics = tmp_path / "killed.work" / "metrics.jsonl"
    for step in sorted(draw.sample(range(1, 10), 3)):
        process = start(drills, tmp_path / "killed", "--resume")
        while process.poll() is None and not (metrics.exists() and metrics.read_text().count("\n") >= step):
            time.sleep(0.005)
        time.sleep(draw.random() * 0.2)  # anywhere in the next step
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    assert start(drills, tmp_path / "killed", "--resume").wait() == 0
    for name in ("model.safetensors", "stage.json"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
