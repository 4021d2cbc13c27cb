"""Models of the hub: loaded, refused and cached, with a hub on this machine."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from microcoder_core.nano import NANO_MODEL
from tests.hub_server import READER, WRITER, HubState, hub_server

PROGRAM = """
import json, logging, os, sys, time
logging.basicConfig(format="%(message)s", level=logging.WARNING)
from microcoder_core.errors import InputError
from microcoder_core.sampling.models import load_model
for name in sys.argv[1:]:
    started = time.monotonic()
    name, _, os.environ["HF_TOKEN"] = name.partition("@")
    try:
        said = load_model(name).prompt_template.kind
    except InputError as error:
        said = str(error)
    print(json.dumps([said, time.monotonic() - started]))
"""
PLAIN = json.loads((NANO_MODEL / "prompt_template.json").read_text())["kind"]


@pytest.fixture
def hub() -> Iterator[HubState]:
    with hub_server() as state:
        files = {file.name: file.read_bytes() for file in NANO_MODEL.iterdir() if file.is_file()}
        state.repos = {"me/open": dict(files), "me/gated": dict(files), "me/private": dict(files), "me/data": {"data.csv": b"1"}}
        state.gated, state.private = {"me/gated"}, {"me/private"}
        yield state


def load(home: Path, endpoint: str, *names: str, **variables: str) -> tuple[list[str], str]:
    """Loads models, each as `NAME` or `NAME@TOKEN`, in one process; returns what came of each, and the warnings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_") and "proxy" not in name.lower()}
    given = {"HF_ENDPOINT": endpoint, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1", "OMP_NUM_THREADS": "1", **variables}
    command = [sys.executable, "-c", PROGRAM, *names]
    done = subprocess.run(command, capture_output=True, text=True, env=kept | given, timeout=120, check=True)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(seconds < 10 for _, seconds in rows)
    return [said for said, _ in rows], done.stderr


def test_a_model_comes_with_the_prompt_template_that_was_uploaded_with_it(hub: HubState, tmp_path: Path) -> None:
    assert PLAIN == "plain"
    hub.repos["me/open"]["prompt_template.json"] = b'{"kind": "plain", "text": "{statement}"}'
    said, warnings = load(tmp_path, hub.address, "me/open", f"me/gated@{WRITER}")
    assert (said, warnings) == (["plain", "plain"], "")
    assert "HEAD /me/open/resolve/main/prompt_template.json" in hub.requests


def test_refusals_say_what_to_do(hub: HubState, tmp_path: Path) -> None:
    names = ("me/gated", "me/private", "me/none", "a b/c", "me/data", f"me/gated@{READER}", "me/open@hf_wrong")
    gated, private, none, no_id, data, no_access, wrong_token = load(tmp_path, hub.address, *names)[0]
    token = "set HF_TOKEN, or run `hf auth login`, with a token"
    in_cache = "and no download of it is whole in the local cache"
    terms = f"accept its terms at {hub.address}/me/gated, then {token}"
    assert gated == f"model: cannot load me/gated: me/gated is gated and there is no token, {in_cache}; {terms}"
    unknown = "the hub knows no repository me/{0}, or it is private and there is no token"
    advice = f"check the name; for a private one, {token}"
    assert private == f"model: cannot load me/private: {unknown.format('private')}, {in_cache}; {advice}"
    assert none == f"model: cannot load me/none: {unknown.format('none')}, {in_cache}; {advice}"
    assert no_id == "model: 'a b/c' is no folder here and no id of the hub; give a folder, an id such as Qwen/Qwen3-1.7B, or 'nano'"
    assert data.startswith("model: cannot load me/data (")
    assert no_access.startswith("model: cannot load me/gated: me/gated is gated and the token has no access to it")
    assert "the hub does not accept the token (401)" in wrong_token


def test_what_was_downloaded_once_loads_without_the_hub(hub: HubState, tmp_path: Path) -> None:
    assert load(tmp_path, hub.address, "me/open")[0] == ["plain"]
    offline = load(tmp_path, hub.address, "me/open", "me/private", HF_HUB_OFFLINE="1")
    assert offline[0][0] == "plain"
    assert "HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set, and no download" in offline[0][1]
    said, warnings = load(tmp_path, "http://127.0.0.1:9", "me/open", "me/private")
    assert said[0] == "plain"
    assert "no connection to http://127.0.0.1:9 (ConnectError" in warnings
    assert "me/open comes from the local cache" in warnings
    assert said[1].startswith("model: cannot load me/private: no connection to http://127.0.0.1:9 (ConnectError")
