"""`microcoder model`: the card and the upload of a trained model, with a hub on this machine."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from microcoder_core.cli.main import cli
from microcoder_core.errors import InputError
from microcoder_core.nano import NANO_MODEL
from microcoder_core.stages.model_card import card_of_folder, model_card
from microcoder_core.stages.results import TrainResult
from microcoder_core.storage.stage_output import StageRecord, write_stage_record
from tests.hub_server import READER, WRITER, HubState, hub_server

MAIN = "import sys; from microcoder_core.cli.main import main; main(sys.argv[1:])"
UPLOADED = [
    "README.md",
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "prompt_template.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "training/config.yaml",
    "training/metrics.jsonl",
]


def record(model: str = "Qwen/Qwen3-1.7B", sha256: str = "hub:Qwen/Qwen3-1.7B") -> StageRecord:
    result = TrainResult(steps=7, samples=56, tokens=999, stages=((0, 1.2),), first={"reward": 0.25}, last={"reward": 0.5})
    config = {"seed": 3, "judge": {"url": "http://10.0.0.7:8080", "chain": "guarded"}}
    inputs = {"problems": "abc", "model": model, "model_sha256": sha256}
    return StageRecord(stage="train", config=config, inputs=inputs, result=result.model_dump(mode="json"))


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """A folder as the stage train leaves it, with a file of the user and checkpoints beside."""
    folder = Path(shutil.copytree(NANO_MODEL, tmp_path / "trained"))
    (folder / "training").mkdir()
    for name in ("metrics.jsonl", "samples.jsonl"):
        (folder / "training" / name).write_text("{}\n")
    (folder / "training" / "config.yaml").write_text("judge: {url: http://10.0.0.7:8080}\n")
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints" / "model.safetensors").write_text("old")
    (folder / ".env").write_text("SECRET=1")
    (folder / "MLmodel").write_text("")
    (folder / "README.md").write_text(model_card(record()))
    write_stage_record(folder, record())
    return folder


@pytest.fixture
def hub() -> Iterator[HubState]:
    with hub_server() as state:
        yield state


def push(folder: Path, endpoint: str, token: str | None = WRITER, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_") and "proxy" not in name.lower()}
    given = {"HF_ENDPOINT": endpoint, "HF_HOME": str(folder.parent / "hf"), "HF_HUB_DISABLE_XET": "1", **variables}
    command = [sys.executable, "-c", MAIN, "model", "push", str(folder), "--repo", "me/mine", *options]
    environment = kept | given | ({"HF_TOKEN": token} if token else {})
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)


def test_push_uploads_the_model_and_nothing_else(trained: Path, hub: HubState) -> None:
    done = push(trained, hub.address, WRITER, "--private", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"repo": "me/mine", "url": f"{hub.address}/me/mine", "files": UPLOADED}
    files = hub.repos["me/mine"]
    assert sorted(files) == UPLOADED
    assert all(files[name] == (trained / name).read_bytes() for name in UPLOADED if name != "training/config.yaml")
    assert b"10.0.0.7" not in files["training/config.yaml"]
    assert b"seed: 3" in files["training/config.yaml"]
    assert hub.private == {"me/mine"}


def test_push_works_with_the_uploader_that_is_the_default(trained: Path, hub: HubState) -> None:
    """huggingface_hub has another one where hf_xet is installed; the store that hf_xet speaks to is not part of this hub."""
    hub.stores_blobs = False
    assert push(trained, hub.address, HF_HUB_DISABLE_XET="0").returncode == 0
    assert sorted(hub.repos["me/mine"]) == UPLOADED
    assert hub.repos["me/mine"]["model.safetensors"] == (trained / "model.safetensors").read_bytes()


def test_push_again_replaces_the_files_and_never_makes_public_what_should_be_private(trained: Path, hub: HubState) -> None:
    hub.repos["me/mine"] = {"README.md": b"before"}
    done = push(trained, hub.address, WRITER, "--private")
    assert (done.returncode, done.stderr) == (
        2,
        "error: private: me/mine is there already and public; make it private in its settings, or give another name\n",
    )
    assert hub.repos["me/mine"] == {"README.md": b"before"}
    assert push(trained, hub.address).returncode == 0
    assert sorted(hub.repos["me/mine"]) == UPLOADED


@pytest.mark.parametrize(
    ("token", "said"),
    [
        (None, "error: token: there is none for the hub; set HF_TOKEN, or run `hf auth login`, with one that may write"),
        ("hf_wrong", "error: push: the hub does not accept the token (401); set HF_TOKEN, or run `hf auth login`, with a token"),
        (
            READER,
            "error: push: the token does not allow this for me/mine (403); set HF_TOKEN, or run `hf auth login`, with a token "
            "of a user who may, with the right to do it",
        ),
    ],
)
def test_a_token_that_does_not_do_is_one_line(trained: Path, hub: HubState, token: str | None, said: str) -> None:
    done = push(trained, hub.address, token)
    assert (done.returncode, done.stderr) == (2, said + "\n")


def test_one_who_may_read_a_repository_may_not_write_it(trained: Path, hub: HubState) -> None:
    hub.repos["me/mine"] = {"README.md": b"before"}
    done = push(trained, hub.address, READER)
    assert (done.returncode, hub.repos["me/mine"]) == (2, {"README.md": b"before"})
    assert done.stderr.startswith("error: push: the token does not allow this for me/mine (403)")


def test_without_a_hub_it_fails_at_once(trained: Path, hub: HubState) -> None:
    started = time.monotonic()
    done = push(trained, "http://127.0.0.1:9")
    assert done.returncode == 1
    assert "failed: push: no connection to http://127.0.0.1:9 (ConnectError" in done.stderr
    hub.broken = True
    done = push(trained, hub.address)
    assert (done.returncode, f"failed: push: the hub at {hub.address} answered 503; try again later" in done.stderr) == (1, True)
    assert push(trained, hub.address, HF_HUB_OFFLINE="1").stderr == (
        "error: push: HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set; unset it to use the hub\n"
    )
    assert time.monotonic() - started < 20


def test_what_is_no_trained_model_is_refused(trained: Path, tmp_path: Path) -> None:
    def refused(folder: Path, repo: str = "me/mine") -> str:
        with pytest.raises(InputError) as caught:
            CliRunner().invoke(cli, ["model", "push", str(folder), "--repo", repo], catch_exceptions=False)
        return str(caught.value)

    assert "no such folder" in refused(tmp_path / "none")
    assert "has no stage.json" in refused(NANO_MODEL)
    assert "must be OWNER/NAME, got 'mine'" in refused(trained, "mine")
    (trained / "model.safetensors").unlink()
    assert "is no whole model" in refused(trained)


def test_card_shows_the_facts_of_the_run(trained: Path) -> None:
    text = CliRunner().invoke(cli, ["model", "card", str(trained)], catch_exceptions=False).output
    assert text == card_of_folder(trained)
    for fact in ("base_model: Qwen/Qwen3-1.7B", "| steps | 7 |", "0.250 -> 0.500", "Seed 3", "`abc`"):
        assert fact in text


def test_card_writes_over_the_old_one_where_asked(trained: Path) -> None:
    (trained / "README.md").write_text("mine")
    CliRunner().invoke(cli, ["model", "card", str(trained)], catch_exceptions=False)
    assert (trained / "README.md").read_text() == "mine"
    CliRunner().invoke(cli, ["model", "card", str(trained), "--write"], catch_exceptions=False)
    assert (trained / "README.md").read_text() == card_of_folder(trained)


def test_card_tells_no_path_of_this_machine() -> None:
    text = model_card(record("/home/me/models/smol", "0" * 64))
    assert "/home/me" not in text
    assert "# smol, trained with MicroCoder-GRPO" in text
    assert "base_model" not in text
