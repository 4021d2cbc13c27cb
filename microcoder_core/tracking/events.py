"""What a tracked run is told, one event at a time: kept in a queue while it is sent, or in a spool file until it can be."""

from __future__ import annotations

import os
import posixpath
import re
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

EventKind = Literal["params", "metrics", "tags", "artifact", "dataset", "end"]
Status = Literal["FINISHED", "FAILED", "KILLED"]

PIPELINE_RUN_TAG = "microcoder.pipeline_run"
"""On parent and children alike: which run of the pipeline it was."""
KIND_TAG = "microcoder.kind"
"""`pipeline` (a parent) or `stage`."""
STAGE_TAG = "microcoder.stage"
VERSION_TAG = "microcoder.version"
RUN_KEY_TAG = "microcoder.run_key"
"""Unique to a run and chosen by us: a run whose creation was answered too late, or replayed twice, is found again by it."""
PARENT_TAG = "mlflow.parentRunId"

MAX_PARAMS = 100
"""MLflow refuses a batch with more parameters or tags."""
_MAX_KEY = 250
_MAX_PARAM = 6000
_MAX_TAG = 8000


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing told to a run. `at_ms` is when it happened, so that one sent late, or twice, is still the same record."""

    kind: EventKind
    values: dict[str, Any]
    at_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStart:
    """How a run begins: all that is needed to create it, now or later."""

    name: str
    tags: dict[str, str]
    experiment_name: str = "microcoder"
    experiment_id: str | None = None
    pipeline_run: str | None = None
    run_id: str | None = None
    """The run to log into, where it is known already."""
    at_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)


def new_run(name: str, tags: Mapping[str, str], pipeline_run: str | None = None, run_id: str | None = None) -> RunStart:
    """The start of a run in the experiment that the environment names (`MLFLOW_EXPERIMENT_ID`, `MLFLOW_EXPERIMENT_NAME`)."""
    label = {PIPELINE_RUN_TAG: pipeline_run} if pipeline_run else {}
    return RunStart(
        name=name,
        tags={**tags, **label, RUN_KEY_TAG: uuid.uuid4().hex, "mlflow.source.name": "microcoder", "mlflow.source.type": "LOCAL"},
        experiment_name=os.environ.get("MLFLOW_EXPERIMENT_NAME") or "microcoder",
        experiment_id=os.environ.get("MLFLOW_EXPERIMENT_ID") or None,
        pipeline_run=pipeline_run,
        run_id=run_id,
    )


def clean_label(text: str) -> str:
    """`text` without what cannot stand inside quotes in a search of MLflow."""
    return re.sub(r"[\"'\\`\s]", "_", text)


def clean_key(key: str) -> str:
    """`key` as MLflow takes it: `pass@1` becomes `pass_at_1`, any other odd character `_`, empty path parts go away."""
    key = re.sub(r"[^\w\-. :/]", "_", key.replace("@", "_at_"), flags=re.ASCII)
    return posixpath.normpath("/" + key).lstrip("/")[:_MAX_KEY].rstrip("/") or "_"


def param_text(value: object) -> str:
    """A setting as text, cut to the length that MLflow takes."""
    return _cut(str(value), _MAX_PARAM)


def tag_text(value: object) -> str:
    """A tag as text, cut to the length that MLflow takes."""
    return _cut(str(value), _MAX_TAG)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 3] + "..."
