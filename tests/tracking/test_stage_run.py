"""One stage's run on a database that is there."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from microcoder_core.errors import StageStopped
from microcoder_core.interrupt import Terminated
from microcoder_core.records import Problem
from microcoder_core.storage.datasets import DatasetWriter, LineageStep
from microcoder_core.tracking import NullTracker
from microcoder_core.tracking.pipeline_run import close_pipeline_run, open_pipeline_run
from microcoder_core.tracking.stage_run import stage_run


def test_params_metrics_and_tags_arrive(client: Any) -> None:
    with stage_run("train") as tracker:
        tracker.log_params({"loss.clip_high": 0.28, "long": "x" * 10_000} | {f"p{i}": i for i in range(150)})
        tracker.log_metrics({"eval/pass@1": 0.5, "reward": 1}, step=1)
        tracker.log_metrics({"eval/pass@1": 0.75}, step=2)
        tracker.set_tags({"note": "hello"})
    run = client.get_run(tracker.run_id)
    assert run.info.status == "FINISHED"
    assert run.data.params["loss.clip_high"] == "0.28"
    assert len(run.data.params) == 152
    assert run.data.params["long"].endswith("...")
    assert [m.value for m in client.get_metric_history(tracker.run_id, "eval/pass_at_1")] == [0.5, 0.75]
    assert run.data.tags.items() >= {"microcoder.stage": "train", "note": "hello", "mlflow.runName": "train"}.items()
    assert "mlflow.parentRunId" not in run.data.tags


def test_nan_and_infinity_are_kept(client: Any) -> None:
    with stage_run("train") as tracker:
        tracker.log_metrics({"loss": math.nan, "norm": math.inf, "kl": 0.5}, step=3)
    metrics = client.get_run(tracker.run_id).data.metrics
    assert math.isnan(metrics["loss"])
    assert metrics["norm"] > 1e300
    assert metrics["kl"] == 0.5


def test_a_refused_value_takes_no_other_with_it(client: Any, caplog: pytest.LogCaptureFixture) -> None:
    with stage_run("train") as tracker:
        tracker.log_params({"seed": 1})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_RUN_ID", str(tracker.run_id))
        with stage_run("train") as again:
            again.log_params({"seed": 2, "steps": 60})
    assert client.get_run(tracker.run_id).data.params == {"seed": "1", "steps": "60"}
    assert "refused seed" in caplog.text


@pytest.mark.parametrize(
    ("error", "status"),
    [(ValueError("x"), "FAILED"), (StageStopped("saved", 143), "KILLED"), (KeyboardInterrupt(), "KILLED"), (Terminated(), "KILLED")],
)
def test_a_run_ends_as_its_stage_did(client: Any, error: BaseException, status: str) -> None:
    with pytest.raises(type(error)), stage_run("train") as tracker:
        raise error
    assert client.get_run(tracker.run_id).info.status == status


def test_a_table_is_one_that_mlflow_reads(client: Any) -> None:
    rows = [{"step": 1, "completion": "print(1)", "reward": None}, {"step": 1, "completion": 'a"\n', "reward": 0.5}]
    with stage_run("train") as tracker:
        tracker.log_table(rows, "completions/step-000001.json")
    table = client.load_table(client.get_run(tracker.run_id).info.experiment_id, "completions/step-000001.json")
    assert list(table["completion"]) == ["print(1)", 'a"\n']
    assert list(table["reward"])[1] == 0.5


def test_an_artifact_is_copied_when_it_is_logged(client: Any, tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.txt").write_text("a")
    (folder / "deep/b.txt").write_text("b")
    with stage_run("report") as tracker:
        tracker.log_artifact(folder / "a.txt", "top")
        tracker.log_artifact(folder, "notes")
        tracker.log_artifact(folder)
        (folder / "a.txt").unlink()
    found = Path(client.get_run(tracker.run_id).info.artifact_uri)
    assert sorted(str(p.relative_to(found)) for p in found.rglob("*.txt")) == [
        *("a.txt", "deep/b.txt"),
        *("notes/a.txt", "notes/deep/b.txt", "top/a.txt"),
    ]


def test_a_dataset_is_recorded_by_its_hash(client: Any, tmp_path: Path, double: Problem) -> None:
    with DatasetWriter(tmp_path / "drills", LineageStep(stage="import")) as writer:
        writer.add(double)
    with stage_run("train") as tracker:
        tracker.log_dataset(tmp_path / "drills", "training")
    (used,) = client.get_run(tracker.run_id).inputs.dataset_inputs
    assert used.dataset.name == "drills"
    assert writer.manifest.content_sha256.startswith(used.dataset.digest)
    assert json.loads(used.dataset.profile) == {"problems": 1}
    assert [(tag.key, tag.value) for tag in used.tags] == [("mlflow.data.context", "training")]


def test_a_model_is_recorded_by_reference(client: Any, tmp_path: Path) -> None:
    from mlflow.models import Model

    (tmp_path / "model").mkdir()
    (tmp_path / "model/model.safetensors").write_bytes(b"weights")
    with stage_run("train") as tracker:
        tracker.log_model(tmp_path / "model", "model")
    run = client.get_run(tracker.run_id)
    assert run.data.tags["microcoder.model_uri"] == str(tmp_path / "model")
    assert [p.name for p in Path(run.info.artifact_uri).rglob("*") if p.is_file()] == ["MLmodel"]
    signature = Model.load(str(Path(run.info.artifact_uri) / "model/MLmodel")).signature
    assert signature.inputs.input_names() == ["prompt"]
    assert signature.outputs.input_names() == ["completion"]


def test_a_given_run_is_logged_into_and_left_open(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    given = client.create_run("0", run_name="task of Kubeflow", tags={"mlflow.source.name": "kfp"}).info.run_id
    monkeypatch.setenv("MLFLOW_RUN_ID", given)
    with stage_run("probe", pipeline_run="attached") as tracker:
        tracker.log_metrics({"diversity": 0.6})
    run = client.get_run(given)
    assert tracker.run_id == given
    assert run.info.status == "RUNNING"
    assert run.data.metrics == {"diversity": 0.6}
    assert run.data.tags.items() >= {"microcoder.stage": "probe", "mlflow.source.name": "kfp", "mlflow.runName": "task of Kubeflow"}.items()


def test_tracking_can_be_turned_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MICROCODER_TRACKING", "off")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with stage_run("train") as tracker:
        tracker.log_metrics({"loss": 1.0})
    assert isinstance(tracker, NullTracker)
    assert open_pipeline_run("off", "demo", {}) is None
    close_pipeline_run("off", "FINISHED")
    assert list(tmp_path.iterdir()) == []


def test_without_settings_a_database_lies_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, client: Any, database: str
) -> None:
    shutil.copyfile(database.removeprefix("sqlite:///"), tmp_path / "mlflow.db")  # saves creating the tables again
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "elsewhere")
    (tmp_path / "a.txt").write_text("a")
    with stage_run("train") as tracker:
        tracker.log_artifact(tmp_path / "a.txt")
    assert [p.read_text() for p in (tmp_path / "mlruns").rglob("a.txt")] == ["a"]
