"""A real MLflow server, which takes other ways than a database does."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from microcoder_core.tracking.mlflow_server import connect
from microcoder_core.tracking.pipeline_run import open_pipeline_run
from microcoder_core.tracking.registry import ModelRegistry
from microcoder_core.tracking.stage_run import stage_run

pytestmark = pytest.mark.slow


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{tmp_path / 'server.db'}", "--artifacts-destination", str(tmp_path / "store")]
    with (tmp_path / "server.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    uri = f"http://127.0.0.1:{port}"
    try:
        wait_for(f"{uri}/health")
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "60")
        yield uri
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def wait_for(url: str) -> None:
    deadline = time.monotonic() + 120
    while True:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def test_runs_artifacts_and_versions_reach_a_server(server: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    parent = open_pipeline_run("served", "served", {"seed": 1})
    with stage_run("train", pipeline_run="served") as tracker:
        for step in range(2000):
            tracker.log_metrics({"reward": step, "loss": float("nan")}, step=step)
        tracker.log_artifact(tmp_path / "a.txt", "notes")
        version = ModelRegistry().register("m", str(tmp_path / "model"), run_id=tracker.run_id, tags={}, description="d")
    client = connect().client
    run = client.get_run(tracker.run_id)
    assert (run.info.status, run.data.tags["mlflow.parentRunId"]) == ("FINISHED", parent)
    assert len(client.get_metric_history(tracker.run_id, "loss")) == 2000
    assert [file.path for file in client.list_artifacts(tracker.run_id, "notes")] == ["notes/a.txt"]
    registered = client.get_model_version("m", version)
    assert registered.source == f"runs:/{tracker.run_id}/registered_model"
    assert registered.tags["microcoder.model_uri"] == str(tmp_path / "model")
    ModelRegistry().set_alias("m", "champion", version)
    champion = ModelRegistry().champion("m")
    assert champion is not None
    assert champion.version == version
