"""Several processes train as one does: real processes under torchrun, over gloo."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from microcoder_core.storage.rows import read_rows

SCRIPT = Path(__file__).with_name("train_processes.py")
STEP = ("loss", "grad_norm", "reward", "clip_ratio/high_mean", "completions/mean_length", "microcoder/masked_frac")


def command(processes: int, out: Path, work: Path | str, changes: dict[str, Any]) -> list[str]:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)] if processes > 1 else []
    return [
        sys.executable,
        "-W",
        "error::UserWarning:torch.distributed.fsdp",
        *launcher,
        str(SCRIPT),
        str(out),
        str(work),
        json.dumps(changes),
    ]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(SCRIPT.parents[2]), "OMP_NUM_THREADS": "1"}


def train(processes: int, folder: Path, work: Path | str = "", **changes: Any) -> dict[str, Any]:
    out = folder / f"{processes}.json"
    ran = subprocess.run(
        command(processes, out, work, changes), env=environment(), capture_output=True, text=True, timeout=240, check=False
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    result: dict[str, Any] = json.loads(out.read_text())
    return result


def curve(result: dict[str, Any]) -> list[list[float]]:
    return [[step[name] for name in STEP] for step in result["history"]]


@pytest.mark.parametrize(
    "changes",
    [
        {"parallel": "ddp"},
        {"parallel": "fsdp"},
        {"parallel": "fsdp", "lora": {"rank": 4}},
        {"parallel": "ddp", "loss": {"importance_correction": "token"}},
    ],
)
def test_two_processes_give_the_curve_of_one(changes: dict[str, Any], tmp_path: Path) -> None:
    one, two = train(1, tmp_path, **{**changes, "parallel": "ddp"}), train(2, tmp_path, **changes)
    assert (one["processes"], two["processes"]) == (1, 2)
    assert two["sharded"] == (changes["parallel"] == "fsdp")
    for alone, together in zip(curve(one), curve(two), strict=True):
        assert together == pytest.approx(alone, abs=2e-5)
    assert two["weights"] == pytest.approx(one["weights"], abs=1e-3)


def test_one_process_has_nothing_to_share_out(tmp_path: Path) -> None:
    assert not train(1, tmp_path, parallel="fsdp", max_steps=1)["sharded"]


def test_two_processes_stop_together_and_one_goes_on_with_the_same_data(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"max_steps": 30, "optimizer": {"learning_rate": 1e-4}}  # so small that rounding changes no sample
    whole = train(1, tmp_path, **changes)
    work = tmp_path / "work"
    run = subprocess.Popen(command(2, tmp_path / "2.json", work, changes | {"parallel": "fsdp"}), env=environment())
    deadline = time.monotonic() + 120
    while not (work / "metrics.jsonl").is_file() and time.monotonic() < deadline:
        time.sleep(0.05)
    run.send_signal(signal.SIGTERM)
    assert run.wait(timeout=120) != 0
    done = [row["step"] for _, row in read_rows(work / "metrics.jsonl")]
    assert 0 < len(done) < 30
    assert (work / "checkpoints" / f"step-{done[-1]:06d}").is_dir()
    train(1, tmp_path, work, **changes)
    rows = [row for _, row in read_rows(work / "metrics.jsonl")]
    assert [row["step"] for row in rows] == list(range(1, 31))
    for resumed, expected in zip(rows, whole["history"], strict=True):
        assert [resumed[name] for name in STEP] == pytest.approx([expected[name] for name in STEP], abs=1e-5)
