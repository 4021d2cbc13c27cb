"""Stages whose completions a real vLLM writes, against the same with the transformers sampler (`make test-vllm`)."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from microcoder_core.storage.stage_output import STAGE_FILE
from tests.sampling.real_vllm import MAIN, START_S, Server

pytestmark = pytest.mark.vllm

STEPS = 12
TOLERANCE = 0.12
"""Of the mean reward of the last four steps: three standard deviations of a difference between two means of 256 rewards of about 0.5."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    one = Server(tmp_path_factory.mktemp("server") / "log")
    yield one
    one.stop()


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All training drills."""
    folder = tmp_path_factory.mktemp("drills") / "data"
    command("data", "import", "drills", "train", "--out", str(folder))
    return folder


def command(*arguments: str) -> None:
    subprocess.run([sys.executable, "-c", MAIN, *arguments], env=environment(), check=True, stdout=subprocess.PIPE, timeout=400)


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "MICROCODER_TRACKING": "off"}


def of(kind: str, server: Server, section: str = "sampler") -> list[str]:
    settings = {"kind": kind} | ({"url": server.url, "sync_deadline_s": START_S} if kind == "vllm_server" else {})
    return [f"{section}.{name}={value}" for name, value in settings.items()]


def train_arguments(problems: Path, out: Path, *settings: str) -> list[str]:
    where = ["--model", "nano", "--problems", str(problems), "--out", str(out), "--preset", "microcoder", "--preset", "nano"]
    return ["train", *where, f"max_steps={STEPS}", "checkpoint.every_steps=4", *settings]


def steps_of(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "training" / "metrics.jsonl").read_text().splitlines()]


def last_third(out: Path) -> float:
    return statistics.fmean(step["reward"] for step in steps_of(out)[-STEPS // 3 :])


@pytest.fixture(scope="module")
def reference(problems: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training with the transformers sampler."""
    out = tmp_path_factory.mktemp("reference") / "model"
    command(*train_arguments(problems, out))
    return out


@pytest.mark.parametrize("kind", ["vllm", "vllm_server"])
def test_training_goes_as_with_the_transformers_sampler(kind: str, server: Server, problems: Path, reference: Path, tmp_path: Path) -> None:
    out = tmp_path / "model"
    command(*train_arguments(problems, out, *of(kind, server)))
    assert abs(last_third(out) - last_third(reference)) < TOLERANCE
    steps = steps_of(out)
    assert len(steps) == STEPS
    # With one update a rollout the ratio is one, unless the samples come from other weights than the trainer's.
    assert all(step["clip_ratio/low_mean"] == step["clip_ratio/high_mean"] == 0 for step in steps)
    assert (out / "model.safetensors").read_bytes() != (reference / "model.safetensors").read_bytes()


def test_a_run_that_was_killed_goes_on_with_the_weights_of_its_checkpoint(server: Server, problems: Path, tmp_path: Path) -> None:
    out, work = tmp_path / "model", tmp_path / "model.work"
    arguments = train_arguments(problems, out, *of("vllm", server))
    process = subprocess.Popen([sys.executable, "-c", MAIN, *arguments], env=environment())
    try:
        while process.poll() is None and not (work / "checkpoints" / "step-000004" / "state.json").exists():
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    command(*arguments, "--resume")
    steps = steps_of(out)
    assert [step["step"] for step in steps] == list(range(1, STEPS + 1))
    assert all(step["clip_ratio/low_mean"] == step["clip_ratio/high_mean"] == 0 for step in steps)


@pytest.mark.parametrize("kind", ["vllm", "vllm_server"])
def test_an_evaluation_scores_as_with_the_transformers_sampler(kind: str, server: Server, drills: Path, tmp_path: Path) -> None:
    def score(name: str, *settings: str) -> float:
        given = ["--model", "nano", "--problems", str(drills), "--out", str(tmp_path / name), "--samples", "32", "--k", "1"]
        command("evaluate", *given, "max_new_tokens=64", *settings)
        return float(json.loads((tmp_path / name / STAGE_FILE).read_text())["result"]["pass_at_k"]["1"])

    assert abs(score("theirs") - score("ours", *of(kind, server))) < TOLERANCE


def test_a_probe_measures_and_pilots_with_vllm(server: Server, drills: Path, tmp_path: Path) -> None:
    given = ["--model", "nano", "--problems", str(drills), "--out", str(tmp_path / "probe"), "temperatures=[0.8, 1.2]", "pilot_updates=3"]
    sizes = ["train.rollout.train_batch_size=8", "train.optimizer.mini_batch_size=8", "train.rollout.max_new_tokens=64"]
    command("probe", *given, *sizes, *of("vllm", server, "train.sampler"))
    result = json.loads((tmp_path / "probe" / STAGE_FILE).read_text())["result"]
    assert [len(pilot["diversity"]) for pilot in result["pilots"]] == [4, 4]
