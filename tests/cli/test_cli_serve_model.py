"""`microcoder serve-model`: what it starts, and what it says where it cannot."""

import importlib.util
import itertools
import os
from typing import Any

import pytest
from click.testing import CliRunner

from microcoder_core.cli.serve_model import serve_model
from microcoder_core.errors import InputError
from microcoder_core.nano import NANO_MODEL


def started(monkeypatch: pytest.MonkeyPatch, *options: str) -> tuple[list[str], dict[str, str]]:
    """The command line and environment of the server that would run."""
    calls: list[Any] = []
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(os, "execve", lambda file, command, environment: calls.append((command, environment)))
    result = CliRunner().invoke(serve_model, ["--model", "nano", *options], catch_exceptions=False)
    assert result.exit_code == 0
    return calls[0]  # type: ignore[no-any-return]


def test_the_server_gives_logprobs_at_the_temperature_and_takes_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    command, environment = started(monkeypatch)
    pairs = set(itertools.pairwise(command))
    assert {("--model", str(NANO_MODEL)), ("--logprobs-mode", "processed_logprobs"), ("--generation-config", "vllm")} <= pairs
    assert ("--worker-extension-cls", "microcoder_core.sampling.vllm_worker.WeightReceiver") in pairs
    assert ("--middleware", "microcoder_core.sampling.vllm_guard.TokenGuard") in pairs
    assert ("--host", "127.0.0.1") in pairs
    assert environment["VLLM_SERVER_DEV_MODE"] == "1"


def test_other_options_are_vllm_s_and_come_last(monkeypatch: pytest.MonkeyPatch) -> None:
    command, _ = started(monkeypatch, "--port", "9000", "--dtype", "float32", "--max-model-len", "64")
    assert command[-4:] == ["--dtype", "float32", "--max-model-len", "64"]
    assert command[command.index("--port") + 1] == "9000"


def test_without_vllm_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"not installed; `pip install 'microcoder\[vllm\]'`"):
        CliRunner().invoke(serve_model, ["--model", "nano"], catch_exceptions=False)


def test_a_model_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    with pytest.raises(InputError, match=r"no such folder, got \./none"):
        CliRunner().invoke(serve_model, ["--model", "./none"], catch_exceptions=False)
