"""A tracking database for all tests of this folder, and servers that are not there."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from microcoder_core.tracking.mlflow_server import connect

ENVIRONMENT = (
    "MLFLOW_RUN_ID",
    "MLFLOW_EXPERIMENT_ID",
    "MLFLOW_EXPERIMENT_NAME",
    "KFP_RUN_ID",
    "MICROCODER_PIPELINE_RUN",
    "MICROCODER_TRACKING",
)


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URI of a database; creating its tables takes seconds, so the tests share it and name their runs apart."""
    return f"sqlite:///{tmp_path_factory.mktemp('tracking') / 'mlflow.db'}"


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No setting of the caller's, and a working folder that may be written to."""
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def client(database: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A client of the database, which the environment names as the tracking server."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", database)
    return connect(database).client


@pytest.fixture(params=["refused", "silent"])
def dead_server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A tracking server that refuses connections, or takes them and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if request.param == "silent":
            listener.listen()
        uri = f"http://127.0.0.1:{listener.getsockname()[1]}"
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
        yield uri
