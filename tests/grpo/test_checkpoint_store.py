"""Checkpoints in an S3 store, for a pod whose disk is gone: moto's server in a process of its own, `microcoder train`'s own stage."""

import importlib.util
import logging
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from minio import Minio

from microcoder_core.errors import InputError, StageStopped, StorageError
from microcoder_core.sampling import transformers_sampler
from microcoder_core.stages.model_source import model_sha256
from microcoder_core.stages.presets import load_train_config
from microcoder_core.stages.train import TrainStageConfig, _identity, checkpoint_store, train
from microcoder_core.storage.datasets import content_sha256
from microcoder_core.storage.s3 import COMPLETE_MARKER, FolderStore
from microcoder_core.tracking import NullTracker
from tests.storage.s3_servers import moto_server

KEYS = ("key", "secret")


@pytest.fixture
def store(tmp_path, monkeypatch, problems):
    if importlib.util.find_spec("moto") is None and not os.environ.get("CI"):
        pytest.skip("moto[server] is not installed")
    with moto_server(tmp_path / "moto.log") as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEYS[0])
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEYS[1])
        monkeypatch.setenv("KFP_RUN_ID", "run-7")
        Minio(url.removeprefix("http://"), *KEYS, secure=False).make_bucket("runs")
        found = checkpoint_store(
            config(), _identity(config(), {"problems": content_sha256(problems), "model_sha256": model_sha256("nano")})
        )
        assert found is not None
        assert str(found).startswith("s3://runs/training/run-7/")
        yield found


@pytest.fixture(scope="module")
def problems(tmp_path_factory):
    from microcoder_core.stages.import_problems import ImportConfig, import_problems

    out = tmp_path_factory.mktemp("drills") / "problems"
    import_problems(ImportConfig(format="drills"), source="train", out=out, tracker=NullTracker())
    return out


def config(steps: int = 5, store: str = "s3://runs/training") -> TrainStageConfig:
    overrides = {
        "max_steps": steps,
        "checkpoint.every_steps": 1,
        "checkpoint.store": store or "null",
        "rollout.train_batch_size": 2,
        "rollout.group_size": 4,
        "optimizer.mini_batch_size": 2,
        "torch_threads": 1,
        "judge.workers": 1,
    }
    return load_train_config(["microcoder", "nano"], [f"{key}={value}" for key, value in overrides.items()])


def run(problems: Path, out: Path, *, resume: bool = False, **changes: Any) -> bytes:
    train(config(**changes), model="nano", problems=problems, out=out, tracker=NullTracker(), resume=resume)
    return (out / "model.safetensors").read_bytes()


@pytest.fixture
def stopped(problems, tmp_path, store, monkeypatch):
    """A run that Ctrl-C stopped in its third step or later, with its work folder gone."""
    called, calls = transformers_sampler._draw, []

    def draw(*arguments):
        calls.append(1)
        if len(store.names()) >= 2:
            monkeypatch.setattr(transformers_sampler, "_draw", called)
            raise KeyboardInterrupt
        return called(*arguments)

    monkeypatch.setattr(transformers_sampler, "_draw", draw)
    with pytest.raises(StageStopped, match="--resume"):
        run(problems, tmp_path / "out")
    shutil.rmtree(tmp_path / "out.work")
    return tmp_path / "out"


def test_a_run_whose_disk_is_gone_goes_on_from_the_store(problems, stopped, store, tmp_path) -> None:
    assert store.names() == ["step-000001", "step-000002"]
    with pytest.raises(InputError, match=r"s3://runs/training/run-7/\w+: holds an unfinished run; add --resume"):
        run(problems, stopped)
    resumed = run(problems, stopped, resume=True)
    assert resumed == run(problems, tmp_path / "whole", store="")
    assert [line.split(",")[0] for line in (stopped / "training" / "metrics.jsonl").read_text().splitlines()] == [
        f'{{"step":{step}' for step in range(1, 6)
    ]
    assert store.names() == []


def test_a_damaged_copy_gives_way_to_the_one_before(problems, stopped, store, tmp_path, caplog) -> None:
    client = store._client
    client.remove_object("runs", store.address.key("step-000002", "state.json"))
    assert COMPLETE_MARKER in {Path(one.object_name).name for one in client.list_objects("runs", recursive=True)}
    assert run(problems, stopped, resume=True) == run(problems, tmp_path / "whole", store="")
    assert "step-000002" in caplog.text


def test_another_training_of_the_pipeline_run_has_a_folder_of_its_own(problems, stopped, store, tmp_path) -> None:
    other = config().model_copy(update={"seed": 1})
    train(other.model_copy(update={"max_steps": 1}), model="nano", problems=problems, out=tmp_path / "seed", tracker=NullTracker())
    assert store.names() == ["step-000001", "step-000002"]


def test_training_goes_on_where_the_store_goes_away(problems, store, tmp_path, monkeypatch, caplog) -> None:
    def away(*_: object) -> None:
        raise StorageError("connection refused")

    monkeypatch.setattr(FolderStore, "upload_folder", away)
    with caplog.at_level(logging.WARNING):
        run(problems, tmp_path / "out", steps=2)
    assert "training goes on with the one on disk" in caplog.text


def test_a_run_outside_a_pipeline_is_found_by_what_it_trains(store, monkeypatch) -> None:
    monkeypatch.delenv("KFP_RUN_ID")
    one, same, other = (str(checkpoint_store(config(), {"model": name})) for name in ("a", "a", "b"))
    assert one == same != other
    assert one.startswith("s3://runs/training/")


@pytest.mark.parametrize("store", ["runs/a", "s3://x", "https://runs/a"])
def test_an_address_that_is_none_is_refused(store: str) -> None:
    with pytest.raises(InputError, match=r"checkpoint.store.*s3://BUCKET/PREFIX"):
        load_train_config(["nano"], [f"checkpoint.store={store}"])
