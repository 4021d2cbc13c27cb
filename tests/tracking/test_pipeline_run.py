"""Parents and children: one parent a pipeline run, made in one place; cached stages shown as cached."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from microcoder_core.tracking.mlflow_server import connect
from microcoder_core.tracking.pipeline_run import close_pipeline_run, open_pipeline_run, record_cached_stages
from microcoder_core.tracking.stage_run import stage_run

PARENT = "mlflow.parentRunId"


def runs_with(client: Any, **tags: str) -> list[Any]:
    query = " and ".join(f"tags.`microcoder.{key}` = '{value}'" for key, value in tags.items())
    return list(client.search_runs([e.experiment_id for e in client.search_experiments()], query))


def test_stages_are_children_of_the_pipeline_run(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    parent = open_pipeline_run("run-1", "nano demo", {"train.steps": 60})
    assert open_pipeline_run("run-1", "nano demo", {"train.steps": 60}) == parent
    with stage_run("curate", pipeline_run="run-1") as curate:
        pass
    monkeypatch.setenv("KFP_RUN_ID", "run-1")
    with stage_run("probe") as probe:
        pass
    close_pipeline_run("run-1", "FINISHED")
    assert [client.get_run(stage.run_id).data.tags[PARENT] for stage in (curate, probe)] == [parent, parent]
    run = client.get_run(parent)
    assert (run.info.run_name, run.info.status, run.data.params) == ("nano demo", "FINISHED", {"train.steps": "60"})


def test_a_stage_makes_no_parent_but_is_found_by_one(client: Any, caplog: pytest.LogCaptureFixture) -> None:
    with stage_run("curate", pipeline_run="late") as tracker:
        pass
    assert "no parent run" in caplog.text
    assert runs_with(client, kind="pipeline", pipeline_run="late") == []
    parent = open_pipeline_run("late", "late", {})
    assert client.get_run(tracker.run_id).data.tags[PARENT] == parent


def test_the_parent_that_kubeflow_made_is_used_and_left_open(client: Any) -> None:
    theirs = client.create_run(client.create_experiment("theirs"), tags={"kfp.pipeline_run_id": "native"}).info
    assert open_pipeline_run("native", "x", {}) == theirs.run_id
    with stage_run("probe", pipeline_run="native") as tracker:
        pass
    close_pipeline_run("native", "FINISHED")
    run = client.get_run(tracker.run_id)
    assert (run.data.tags[PARENT], run.info.experiment_id) == (theirs.run_id, theirs.experiment_id)
    assert client.get_run(theirs.run_id).info.status == "RUNNING"


def test_processes_that_start_at_once_make_one_database_and_one_parent(tmp_path: Path) -> None:
    code = """
from microcoder_core.tracking.pipeline_run import open_pipeline_run
from microcoder_core.tracking.stage_run import stage_run
open_pipeline_run("both", "both", {})
with stage_run("evaluate", pipeline_run="both"):
    pass
"""
    uri = f"sqlite:///{tmp_path / 'new.db'}"
    environment = {"MLFLOW_TRACKING_URI": uri, "PATH": "/usr/bin:/bin"}
    both = [subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=environment, stderr=subprocess.PIPE) for _ in range(2)]
    assert [process.communicate(timeout=120)[1] for process in both] == [b"", b""]
    client = connect(uri).client
    (parent,) = runs_with(client, kind="pipeline", pipeline_run="both")
    stages = runs_with(client, kind="stage", pipeline_run="both")
    assert [run.data.tags[PARENT] for run in stages] == [parent.info.run_id] * 2


def test_a_cached_stage_is_shown_as_cached(client: Any) -> None:
    open_pipeline_run("first", "first", {})
    with stage_run("probe", pipeline_run="first") as probe:
        probe.log_params({"grid": "0.6,1.2"})
        probe.log_metrics({"diversity": 0.5}, step=1)
        probe.log_metrics({"diversity": 0.7}, step=2)
    second = open_pipeline_run("second", "second", {})
    with stage_run("train", pipeline_run="second") as train:
        pass
    for _ in range(2):
        record_cached_stages("second", {"probe": str(probe.run_id), "train": str(train.run_id), "report": ""})
    (cached,) = runs_with(client, cached="true", pipeline_run="second")
    assert cached.data.tags.items() >= {"microcoder.cached_from": probe.run_id, "microcoder.stage": "probe", PARENT: second}.items()
    assert (cached.info.run_name, cached.info.status) == ("probe", "FINISHED")
    assert (cached.data.params, cached.data.metrics) == ({"grid": "0.6,1.2"}, {"diversity": 0.7})
    assert "microcoder.cached" not in client.get_run(train.run_id).data.tags


def test_a_cached_stage_whose_run_is_gone_is_shown_still(client: Any, caplog: pytest.LogCaptureFixture) -> None:
    open_pipeline_run("third", "third", {})
    record_cached_stages("third", {"probe": "0123456789abcdef0123456789abcdef"})
    (cached,) = runs_with(client, cached="true", pipeline_run="third")
    assert cached.info.status == "FINISHED"
    assert "which is gone" in caplog.text
