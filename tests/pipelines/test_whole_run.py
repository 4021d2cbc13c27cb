"""The whole pipeline on the nano model, as a user runs it: stopped in the middle of training, then resumed."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from microcoder_core.data.importers import IMPORTERS
from microcoder_core.records import Problem
from microcoder_core.storage.datasets import export_jsonl

pytestmark = pytest.mark.slow

MAIN = "import sys; from microcoder_core.cli.main import main; main(sys.argv[1:])"
SETTINGS = (
    "data_format=jsonl",
    "data_overrides=[verify.references=false, verify.wrong_solutions=false]",
    "probe_overrides=[problems=4, pilot_updates=1, 'temperatures=[1.0]']",
    "train_overrides=[max_steps=8, checkpoint.every_steps=2]",
    "eval_format=jsonl",
    "eval_overrides=[max_new_tokens=64, samples=2, 'k=[1]']",
)


def drills(split: str, count: int) -> list[Problem]:
    return [problem for problem in itertools.islice(IMPORTERS["drills"](split), count) if isinstance(problem, Problem)]


def start(root: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", MAIN, "pipeline", "run", "--local", "--preset", "nano", "--out", str(root / "run"), *more, *SETTINGS]
    sources = [f"data_source={root / 'train.jsonl'}", f"eval_source={root / 'held_out.jsonl'}"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MLFLOW_", "MICROCODER_"))}
    with (root / "stderr").open("a") as log:
        return subprocess.Popen([*command, *sources], stdout=subprocess.PIPE, stderr=log, text=True, env=environment)


def wait_for(file: Path, text: str, process: subprocess.Popen[str]) -> None:
    while text not in (file.read_text() if file.exists() else ""):
        assert process.poll() is None, (file.read_text() if file.exists() else "") + f"ended before {text!r}"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped in training and then resumed."""
    root = tmp_path_factory.mktemp("whole")
    export_jsonl(drills("train", 24), root / "train.jsonl")
    export_jsonl(drills("held_out", 24), root / "held_out.jsonl")
    first = start(root)
    wait_for(root / "run" / "work" / "train" / "metrics.jsonl", "\n", first)
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=120)
    assert first.returncode == 3
    assert (root / "stderr").read_text().splitlines()[-1].endswith("--resume")
    second = start(root, "--resume")
    (root / "stdout").write_text(second.communicate(timeout=600)[0])
    assert second.returncode == 0, (root / "stderr").read_text()
    return root


def test_resume_repeats_no_finished_stage(finished: Path) -> None:
    log = (finished / "stderr").read_text()
    assert log.count("done before") == 5  # both imports, curate, evaluate base, probe


def test_summary_has_what_a_script_reads(finished: Path) -> None:
    summary = json.loads((finished / "run" / "summary.json").read_text())
    assert summary["problems_in"] == 24
    assert 0 <= summary["base_pass_at_1"] <= 1
    assert 0 <= summary["trained_pass_at_1"] <= 1
    assert summary["temperature"] == 1.0
    stages = {"import_train", "import_held_out", "curate", "probe", "train", "evaluate_base", "evaluate_trained", "promote", "report"}
    assert set(summary["seconds"]) == stages | {"total"}


def test_stdout_is_the_result(finished: Path) -> None:
    shown = (finished / "stdout").read_text()
    for text in ("24 problems in", "T 1 ", "<- chosen", "pass@1      base", "promotion ", "report.html", "mlflow ui --backend-store-uri"):
        assert text in shown
    assert (finished / "run" / "report.html").is_file()
    assert not (finished / "run" / "work").exists()


def test_one_parent_run_has_every_stage(finished: Path) -> None:
    query = (
        "from mlflow.tracking import MlflowClient; import json, sys; client = MlflowClient(sys.argv[1]); "
        "runs = client.search_runs([e.experiment_id for e in client.search_experiments()]); "
        "print(json.dumps([[r.info.run_name, r.info.status, r.info.run_id, r.data.tags.get('mlflow.parentRunId')] for r in runs]))"
    )
    uri = f"sqlite:///{finished / 'run' / 'mlflow.db'}"
    answer = subprocess.run([sys.executable, "-W", "ignore", "-c", query, uri], capture_output=True, text=True, check=True)
    runs = json.loads(answer.stdout)
    (parent,) = [run for run in runs if run[3] is None]
    assert parent[:2] == ["microcoder-train", "FINISHED"]
    assert {run[3] for run in runs if run != parent} == {parent[2]}
    assert sorted(run[1] for run in runs if run[0] == "train") == ["FINISHED", "KILLED"]
