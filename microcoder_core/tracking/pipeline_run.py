"""The parent run of a pipeline run: made here and nowhere else, by the pipeline's first task or the local runner."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from microcoder_core import __version__
from microcoder_core.tracking.events import (
    KIND_TAG,
    MAX_PARAMS,
    PARENT_TAG,
    PIPELINE_RUN_TAG,
    RUN_KEY_TAG,
    STAGE_TAG,
    VERSION_TAG,
    Event,
    Status,
    clean_key,
    clean_label,
    new_run,
    param_text,
)
from microcoder_core.tracking.mlflow_server import MlflowServer, connect
from microcoder_core.tracking.stage_run import tracking_is_off

logger = logging.getLogger(__name__)

CACHED_TAG = "microcoder.cached"
CACHED_FROM_TAG = "microcoder.cached_from"
_RETRY_S = 1.0

Answer = TypeVar("Answer")


def open_pipeline_run(pipeline_run: str, name: str, params: Mapping[str, Any]) -> str | None:
    """The id of the parent run of `pipeline_run`, made where there is none; None where the server is away (said in the log).

    Calling it again, from anywhere, finds the same run. Stages that started before it are put below it.
    """
    label = clean_label(pipeline_run)

    def find_or_make(server: MlflowServer) -> str:
        parent = server.find_parent(label)
        run_id = str(parent.info.run_id) if parent else _make_parent(server, label, name, params)
        for run in server.find({PIPELINE_RUN_TAG: label, KIND_TAG: "stage"}):
            if PARENT_TAG not in run.data.tags:
                server.client.set_tag(run.info.run_id, PARENT_TAG, run_id)
        return run_id

    return _attempt(f"open pipeline run {pipeline_run}", find_or_make)


def close_pipeline_run(pipeline_run: str, status: Status) -> None:
    """Ends the parent run of `pipeline_run`, unless Kubeflow Pipelines made it and ends it itself."""
    label = clean_label(pipeline_run)

    def close(server: MlflowServer) -> None:
        parent = server.find_parent(label)
        if parent and parent.data.tags.get(KIND_TAG) == "pipeline":
            server.client.set_terminated(parent.info.run_id, status=status)

    _attempt(f"close pipeline run {pipeline_run}", close)


def record_cached_stages(pipeline_run: str, stage_runs: Mapping[str, str]) -> None:
    """Shows each stage that was taken from the cache as a run of this pipeline run, with the run it came from and its numbers.

    Args:
        stage_runs: Tracked run of each stage by the stage's name, as the output artifacts carry it. One that ran in this pipeline
            run is left alone, as is one without a run.
    """
    label = clean_label(pipeline_run)

    def record(server: MlflowServer) -> None:
        parent = server.find_parent(label)
        for stage, run_id in stage_runs.items():
            if run_id:
                _record_cached(server, label, parent, stage, run_id)

    _attempt(f"record the cached stages of pipeline run {pipeline_run}", record)


def _make_parent(server: MlflowServer, label: str, name: str, params: Mapping[str, Any]) -> str:
    start = new_run(name, {KIND_TAG: "pipeline", VERSION_TAG: __version__}, label)
    server.create(start)
    first, *others = server.find({PIPELINE_RUN_TAG: label, KIND_TAG: "pipeline"})
    for run in others:  # two first tasks at once, such as a retry: all of them keep the same one
        server.client.delete_run(run.info.run_id)
    run_id = str(first.info.run_id)
    if first.data.tags[RUN_KEY_TAG] == start.tags[RUN_KEY_TAG]:
        _log_params(server, run_id, {clean_key(key): param_text(value) for key, value in params.items()})
    return run_id


def _record_cached(server: MlflowServer, label: str, parent: Any, stage: str, run_id: str) -> None:
    try:
        source = server.client.get_run(run_id)
    except Exception as error:
        if getattr(error, "error_code", None) != "RESOURCE_DOES_NOT_EXIST":
            raise
        logger.warning("tracking: stage %s came from the cache, from run %s, which is gone", stage, run_id)
        source = None
    if source and _belongs(source, label, parent):
        return
    identity = {STAGE_TAG: stage, CACHED_FROM_TAG: run_id, PIPELINE_RUN_TAG: label}
    found = server.find(identity)
    if found and found[0].info.status == "FINISHED":
        return
    tags = {**identity, CACHED_TAG: "true", KIND_TAG: "stage", VERSION_TAG: __version__}
    copy_id = str(found[0].info.run_id) if found else server.create(new_run(stage, tags, label))
    if source:
        _log_params(server, copy_id, source.data.params)
        _log_last_metrics(server, copy_id, source.data.metrics)
    server.client.set_terminated(copy_id, status="FINISHED")


def _belongs(run: Any, label: str, parent: Any) -> bool:
    own_parent = run.data.tags.get(PARENT_TAG)
    return run.data.tags.get(PIPELINE_RUN_TAG) == label or (parent is not None and own_parent == parent.info.run_id)


def _log_params(server: MlflowServer, run_id: str, params: Mapping[str, str]) -> None:
    items = list(params.items())
    for start in range(0, len(items), MAX_PARAMS):
        server.send(run_id, [Event(kind="params", values=dict(items[start : start + MAX_PARAMS]))])


def _log_last_metrics(server: MlflowServer, run_id: str, metrics: Mapping[str, float]) -> None:
    items = list(metrics.items())
    for start in range(0, len(items), MAX_PARAMS):
        part = dict(items[start : start + MAX_PARAMS])
        server.send(run_id, [Event(kind="metrics", values={"step": 0, "metrics": part})])


def _attempt(what: str, action: Callable[[MlflowServer], Answer]) -> Answer | None:
    """`action` on the tracking server, tried twice; None where tracking is off or the server is away: the work goes on untracked."""
    if tracking_is_off():
        return None
    try:
        return action(connect())
    except Exception as first:
        logger.info("tracking: trying again to %s (%s)", what, " ".join(str(first).split())[:200])
    time.sleep(_RETRY_S)
    try:
        return action(connect())
    except Exception as error:  # whatever the client raises: the pipeline's work does not depend on its record
        logger.warning("tracking: could not %s (%s)", what, " ".join(str(error).split())[:200])
        return None
