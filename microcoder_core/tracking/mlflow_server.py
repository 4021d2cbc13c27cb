"""The only module that talks to MLflow: a quiet client with short timeouts, and what of microcoder is sent through it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from microcoder_core.tracking.events import (
    KIND_TAG,
    MAX_PARAMS,
    PARENT_TAG,
    PIPELINE_RUN_TAG,
    RUN_KEY_TAG,
    Event,
    RunStart,
)

logger = logging.getLogger(__name__)

DEFAULT_URI = "sqlite:///mlflow.db"
_BATCHED = ("params", "metrics", "tags")
_MAX_METRICS = 500
"""Metrics a request: half of what MLflow takes, so that a slow server answers in time."""
_REFUSALS = ("INVALID_PARAMETER_VALUE", "BAD_REQUEST")
"""Answers that stay the same however often it is tried."""
_QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_LOGGING_LEVEL": "ERROR",
    "GIT_PYTHON_REFRESH": "quiet",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
}
"""MLflow's own settings, which it has in the environment only. Retries are ours: MLflow's would hold a batch for four minutes."""


def tracking_uri() -> str:
    """Where runs are tracked: `MLFLOW_TRACKING_URI`, else a database in the working folder."""
    return os.environ.get("MLFLOW_TRACKING_URI") or DEFAULT_URI


def is_local(uri: str) -> bool:
    """Whether `uri` is a database file on this machine, which is never away."""
    return uri.startswith("sqlite:")


def import_client() -> Any:
    """The class MlflowClient, imported without its noise. Call in the main thread: imports in two threads can block each other."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    warnings.filterwarnings("ignore", message="The ``noload`` loader strategy", module=r"mlflow\.")  # MLflow 3.17 on SQLAlchemy 2.1
    from mlflow.tracking import MlflowClient

    for noisy in ("mlflow", "alembic"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    return MlflowClient


def connect(uri: str | None = None) -> MlflowServer:
    """A server that has answered; raises what MLflow raises where it does not."""
    uri = uri or tracking_uri()
    with _one_at_a_time(uri):
        client = import_client()(tracking_uri=uri)
        client.search_experiments(max_results=1)
    return MlflowServer(client, uri)


def is_refusal(error: Exception) -> bool:
    """Whether the server answered that this request is wrong and will stay so."""
    return getattr(error, "error_code", None) in _REFUSALS


class MlflowServer:
    """A tracking server (or database), spoken to in microcoder's words."""

    def __init__(self, client: Any, uri: str) -> None:
        self.client = client
        self.uri = uri

    def experiment(self, start: RunStart) -> str:
        """The id of the experiment that `start` names, made where it is missing."""
        if start.experiment_id:
            return start.experiment_id
        found = self.client.get_experiment_by_name(start.experiment_name)
        if found is None:
            with contextlib.suppress(Exception):  # another process was faster; a server that is away fails in the next line
                self.client.create_experiment(start.experiment_name, artifact_location=_artifact_root(self.uri))
            found = self.client.get_experiment_by_name(start.experiment_name)
        return str(found.experiment_id)

    def find(self, tags: Mapping[str, str]) -> list[Any]:
        """Runs in any experiment with all of `tags`, the earliest first."""
        query = " and ".join(f"tags.`{key}` = '{value}'" for key, value in tags.items())
        experiments = [experiment.experiment_id for experiment in self.client.search_experiments()]
        runs = self.client.search_runs(experiments, query)
        return sorted(runs, key=lambda run: (run.info.start_time, run.info.run_id))

    def find_parent(self, pipeline_run: str) -> Any | None:
        """The parent run of a pipeline run: ours, or the one that Kubeflow Pipelines made itself."""
        ours = self.find({PIPELINE_RUN_TAG: pipeline_run, KIND_TAG: "pipeline"})
        theirs = [] if ours else self.find({"kfp.pipeline_run_id": pipeline_run})
        return next((run for run in ours + theirs if PARENT_TAG not in run.data.tags), None)

    def create(self, start: RunStart) -> str:
        """Creates the run of `start`, below its pipeline's parent where there is one; returns its id."""
        parent = None
        if start.pipeline_run and start.tags.get(KIND_TAG) != "pipeline":
            parent = self.find_parent(start.pipeline_run)
            if parent is None:  # a stage never makes a parent: two that start at once would make two
                logger.warning("tracking: pipeline run %s has no parent run; %s is tracked at top level", start.pipeline_run, start.name)
        tags = start.tags | ({PARENT_TAG: parent.info.run_id} if parent else {})
        experiment = parent.info.experiment_id if parent else self.experiment(start)
        run = self.client.create_run(experiment, start_time=start.at_ms, tags=tags, run_name=start.name)
        return str(run.info.run_id)

    def find_or_create(self, start: RunStart) -> str:
        """The run of `start`, which an earlier attempt may have made."""
        found = self.find({RUN_KEY_TAG: start.tags[RUN_KEY_TAG]})
        return str(found[0].info.run_id) if found else self.create(start)

    def send(self, run_id: str, events: Sequence[Event]) -> int:
        """Sends as many of the first `events` as go into one request; returns their number."""
        first = events[0]
        if first.kind in _BATCHED:
            return self._send_batch(run_id, events)
        try:
            {"artifact": self._send_artifact, "dataset": self._send_dataset, "end": self._send_end}[first.kind](run_id, first)
        except Exception as error:
            if not is_refusal(error):
                raise
            logger.warning("tracking: the server refused a %s of run %s: %s", first.kind, run_id, _one_line(error))
        return 1

    def _send_batch(self, run_id: str, events: Sequence[Event]) -> int:
        group: list[Event] = []
        entities: dict[str, list[Any]] = {kind: [] for kind in _BATCHED}
        for event in takewhile(lambda event: event.kind in _BATCHED, events):
            new = _entities(event)
            limit = _MAX_METRICS if event.kind == "metrics" else MAX_PARAMS
            if group and len(entities[event.kind]) + len(new) > limit:
                break
            entities[event.kind] += new
            group.append(event)
        self._log_batch(run_id, entities)
        return len(group)

    def _log_batch(self, run_id: str, entities: Mapping[str, list[Any]]) -> None:
        try:
            self.client.log_batch(run_id, synchronous=True, **entities)
        except Exception as error:
            if not is_refusal(error):
                raise
            singles = [(kind, entity) for kind in _BATCHED for entity in entities[kind]]
            if len(singles) == 1:
                logger.warning("tracking: the server refused %s of run %s: %s", singles[0][1].key, run_id, _one_line(error))
                return
            for kind, entity in singles:  # one wrong value must not take the others with it
                self._log_batch(run_id, {key: [entity] if key == kind else [] for key in _BATCHED})

    def _send_artifact(self, run_id: str, event: Event) -> None:
        self.client.log_artifact(run_id, event.values["copy"], event.values["folder"] or None)

    def _send_dataset(self, run_id: str, event: Event) -> None:
        from mlflow.entities import Dataset, DatasetInput, InputTag

        values = event.values
        dataset = Dataset(
            name=values["name"],
            digest=values["digest"],
            source_type="local",
            source=json.dumps({"uri": values["uri"]}),
            profile=json.dumps(values["profile"]),
        )
        self.client.log_inputs(run_id, datasets=[DatasetInput(dataset, [InputTag("mlflow.data.context", values["context"])])])

    def _send_end(self, run_id: str, event: Event) -> None:
        self.client.set_terminated(run_id, status=event.values["status"], end_time=event.at_ms)


def _entities(event: Event) -> list[Any]:
    from mlflow.entities import Metric, Param, RunTag

    if event.kind == "metrics":
        step = event.values["step"]
        return [Metric(key, value, event.at_ms, step) for key, value in event.values["metrics"].items()]
    kind = Param if event.kind == "params" else RunTag
    return [kind(key, value) for key, value in event.values.items()]


def _artifact_root(uri: str) -> str | None:
    """Folder of artifacts beside a database file; a server has its own."""
    return str(_database(uri).parent / "mlruns") if is_local(uri) else None


def _database(uri: str) -> Path:
    return Path(uri.removeprefix("sqlite:///").partition("?")[0]).absolute()


@contextlib.contextmanager
def _one_at_a_time(uri: str) -> Iterator[None]:
    """Keeps two processes from creating the tables of one database at once, which MLflow 3.17 does not survive."""
    if not is_local(uri):
        yield
        return
    database = _database(uri)
    database.parent.mkdir(parents=True, exist_ok=True)
    with database.with_name(database.name + ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
