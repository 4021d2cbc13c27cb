"""A tracking server that is away slows nothing and loses nothing."""

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from microcoder_core.errors import InputError, MicrocoderError
from microcoder_core.tracking.delivery import Delivery
from microcoder_core.tracking.events import Event
from microcoder_core.tracking.mlflow_server import connect
from microcoder_core.tracking.pipeline_run import open_pipeline_run
from microcoder_core.tracking.spool import replay
from microcoder_core.tracking.stage_run import stage_run


def test_a_dead_server_slows_nothing_and_every_number_arrives_later(
    dead_server: str, tmp_path: Path, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (tmp_path / "a.txt").write_text("artifact")
    with stage_run("train", pipeline_run=tmp_path.name, spool=out) as tracker:
        entered = time.monotonic()
        tracker.log_params({"seed": 1})
        tracker.log_artifact(tmp_path / "a.txt", "notes")
        for step in range(1000):
            tracker.log_metrics({"reward": step / 10, "loss": float("nan")}, step=step)
        assert time.monotonic() - entered < 1.0
        (tmp_path / "a.txt").unlink()
        ended = time.monotonic()
    assert time.monotonic() - ended < 10.0
    assert tracker.run_id is None
    spool = out / "mlflow_spool.jsonl"
    assert f"python -m microcoder_core.tracking.spool {spool}" in caplog.text

    run_id = replay(spool, database)
    assert replay(spool, database) == run_id
    client = connect(database).client
    history = sorted(client.get_metric_history(run_id, "reward"), key=lambda metric: metric.step)
    assert [(metric.step, metric.value) for metric in history] == [(step, step / 10) for step in range(1000)]
    losses = [metric.value for metric in client.get_metric_history(run_id, "loss")]
    assert len(losses) == 1000
    assert all(map(math.isnan, losses))
    run = client.get_run(run_id)
    assert (run.info.status, run.data.params) == ("FINISHED", {"seed": "1"})
    assert (Path(run.info.artifact_uri) / "notes/a.txt").read_text() == "artifact"
    assert len(client.search_runs([run.info.experiment_id], f"tags.`microcoder.pipeline_run` = '{tmp_path.name}'")) == 1


def test_a_stage_that_failed_spools_beside_its_output(dead_server: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no"), stage_run("train", spool=tmp_path / "out"):
        raise ValueError("no")
    assert [path.name for path in tmp_path.iterdir()] == ["out.mlflow_spool.jsonl"]


def test_a_pipeline_run_goes_on_without_its_parent(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    assert open_pipeline_run("x", "x", {}) is None
    assert "could not open pipeline run x" in caplog.text


def test_replaying_to_a_dead_server_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    with stage_run("train"):
        pass
    with pytest.raises(MicrocoderError, match="check MLFLOW_TRACKING_URI"):
        replay(tmp_path / "mlflow_spool.jsonl")


@pytest.mark.parametrize("text", ["", '{"name": "x"}\n', "nonsense\n"])
def test_what_is_no_spool_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "spool.jsonl").write_text(text)
    with pytest.raises(InputError):
        replay(tmp_path / "spool.jsonl")


def test_a_server_that_comes_back_gets_everything_in_order() -> None:
    got: list[int] = []

    def send(events: Sequence[Event]) -> int:
        nonlocal away
        if away:
            away = False
            raise ConnectionError("away")
        got.extend(event.values["number"] for event in events[:3])
        return len(events[:3])

    away = True
    delivery = Delivery(send, patience_s=5)
    for number in range(10):
        delivery.put(Event(kind="metrics", values={"number": number}))
    deadline = time.monotonic() + 10
    while len(got) < 10 and time.monotonic() < deadline:
        time.sleep(0.01)
    delivery.drain()
    assert got == list(range(10))
    assert delivery.take_unsent() == []


def test_what_a_slow_server_has_taken_is_not_spooled_again() -> None:
    def send(events: Sequence[Event]) -> int:
        if events[0].values["number"] == 2:
            time.sleep(30)
        return 1

    delivery = Delivery(send, patience_s=0.2)
    for number in range(4):
        delivery.put(Event(kind="metrics", values={"number": number}))
    began = time.monotonic()
    delivery.drain()
    assert time.monotonic() - began < 5
    assert [event.values["number"] for event in delivery.take_unsent()] == [2, 3]


def test_a_stage_logs_at_full_speed_to_a_database(client: Any) -> None:
    with stage_run("train") as tracker:
        began = time.monotonic()
        for step in range(1000):
            tracker.log_metrics({"reward": 0.5}, step=step)
        assert time.monotonic() - began < 1.0
    assert len(client.get_metric_history(tracker.run_id, "reward")) == 1000
