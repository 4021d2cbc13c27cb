"""A Tracker on MLflow that never waits for the server: events are queued, sent by one thread, and spooled where that fails."""

from __future__ import annotations

import dataclasses
import json
import logging
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from microcoder_core.errors import InputError
from microcoder_core.storage.datasets import content_sha256, read_manifest
from microcoder_core.tracking.addresses import without_password
from microcoder_core.tracking.delivery import Delivery
from microcoder_core.tracking.events import (
    MAX_PARAMS,
    PIPELINE_RUN_TAG,
    RUN_KEY_TAG,
    STAGE_TAG,
    VERSION_TAG,
    Event,
    EventKind,
    RunStart,
    Status,
    clean_key,
    param_text,
    tag_text,
)
from microcoder_core.tracking.mlflow_server import import_client, is_local, tracking_uri
from microcoder_core.tracking.model_record import MODEL_URI_TAG, mlmodel_text, model_uri
from microcoder_core.tracking.spool import RunSender, spool_path, write_spool

logger = logging.getLogger(__name__)

_LOCAL_PATIENCE_S = 60.0
"""A database file is never away, and must not be left half created."""
_SERVER_PATIENCE_S = 10.0
_DIGEST_LENGTH = 16
"""Characters of the content hash; MLflow takes 36."""


Value = TypeVar("Value")

_TABLES_TAG = "mlflow.loggedArtifacts"
"""Where MLflow looks up the tables of a run."""
_MOST_TABLES = 100
"""Newest ones that the tag names: a tag holds 8,000 characters."""


class MlflowTracker:
    """One run. Close it: what was not sent until then is spooled.

    Args:
        start: How the run begins. With a `run_id` the run is somebody else's: it is logged into, and not ended.
    """

    def __init__(self, start: RunStart) -> None:
        import_client()
        uri = tracking_uri()
        self.spooled: Path | None = None
        """The file of what could not be sent; known after `close`."""
        self._start = start
        self._uri = uri
        self._copies = Path(tempfile.mkdtemp(prefix="microcoder-tracking-"))
        self._num_copies = 0
        self._tables: list[dict[str, str]] = []
        self._sender = RunSender(start, uri)
        self._delivery = Delivery(self._sender.send, _LOCAL_PATIENCE_S if is_local(uri) else _SERVER_PATIENCE_S)
        own = start.run_id is None
        self.set_tags({key: value for key, value in start.tags.items() if own or key in (STAGE_TAG, PIPELINE_RUN_TAG, VERSION_TAG)})

    @property
    def run_id(self) -> str | None:
        """Identifier of the run, or None where the server cannot be reached. Waits (seconds at most) for the first answer."""
        if self._sender.run_id is None:
            self._delivery.wait_for_first()
        return self._sender.run_id

    def log_params(self, params: Mapping[str, Any]) -> None:
        """Records settings, by dotted name."""
        self._put_texts("params", {clean_key(key): param_text(value) for key, value in params.items()})

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Records short texts that runs are searched by."""
        self._put_texts("tags", {clean_key(key): tag_text(value) for key, value in tags.items()})

    def log_metrics(self, metrics: Mapping[str, float], step: int = 0) -> None:
        """Records numbers at a step. NaN stays NaN: it is what the step had."""
        values = {clean_key(key): float(value) for key, value in metrics.items()}
        for part in _parts(values):
            self._put("metrics", {"step": int(step), "metrics": part})

    def log_artifact(self, path: Path, folder: str = "") -> None:
        """Records a copy of a file, or of all that is in a folder; taken now, so that `path` may go away."""
        if path.is_dir():
            for file in sorted(path.rglob("*")):
                if file.is_file():
                    self.log_artifact(file, (PurePosixPath(folder) / file.relative_to(path).parent).as_posix())
            return
        shutil.copyfile(path, copy := self._new_copy(path.name))
        self._put("artifact", {"copy": str(copy), "folder": "" if folder == "." else folder})

    def log_table(self, rows: Sequence[Mapping[str, Any]], path: str) -> None:
        """Records rows of one shape as a JSON file at `path` among the run's artifacts, as `mlflow.load_table` reads it."""
        columns = list(rows[0]) if rows else []
        place = PurePosixPath(path)
        copy = self._new_copy(place.name)
        copy.write_text(json.dumps({"columns": columns, "data": [[row[name] for name in columns] for row in rows]}), encoding="utf-8")
        self._put("artifact", {"copy": str(copy), "folder": "" if place.parent.name == "" else str(place.parent)})
        self._tables = [*self._tables, {"path": path, "type": "table"}][-_MOST_TABLES:]
        self.set_tags({_TABLES_TAG: json.dumps(self._tables)})

    def log_dataset(self, path: Path, context: str) -> None:
        """Records that a data set was used, by path and content hash. `context` is its role, such as `training`."""
        profile = {"problems": read_manifest(path).problems} if path.is_dir() else {}
        values = {"name": path.name, "digest": content_sha256(path)[:_DIGEST_LENGTH], "uri": str(path.absolute())}
        self._put("dataset", {**values, "profile": profile, "context": context})

    def log_model(self, folder: Path, name: str) -> None:
        """Records a model folder with its signature by reference: no weights are copied. `folder` is where it will stay."""
        copy = self._new_copy("MLmodel")
        copy.write_text(mlmodel_text(), encoding="utf-8")
        self._put("artifact", {"copy": str(copy), "folder": name})
        self.set_tags({MODEL_URI_TAG: model_uri(folder)})

    def close(self, status: Status, out: Path | None = None) -> None:
        """Ends the run; what could not be sent goes into a file in `out` (the stage's output folder), and a log line says so."""
        if self._start.run_id is None:
            self._put("end", {"status": status})
        try:
            self._delivery.drain()
        finally:
            self._spool(out)
            shutil.rmtree(self._copies, ignore_errors=True)

    def _spool(self, out: Path | None) -> None:
        left = self._delivery.take_unsent()
        if not left:
            return
        path = spool_path(out, self._start)
        start = dataclasses.replace(self._start, run_id=self._sender.run_id)
        try:
            write_spool(path, start, left)
        except (InputError, OSError) as error:
            logger.warning("tracking: cannot spool to %s (%s)", path, error)
            path = Path(tempfile.gettempdir()) / f"{start.tags[RUN_KEY_TAG]}.{path.name}"
            write_spool(path, start, left)
        self.spooled = path
        logger.warning(
            "tracking: %s could not be told %d events of stage run %s (%s); they are in %s; send them later with: "
            "python -m microcoder_core.tracking.spool %s",
            without_password(self._uri),
            len(left),
            start.name,
            without_password(" ".join(str(self._delivery.error or "no answer in time").split())[:200]),
            path,
            path,
        )

    def _put(self, kind: EventKind, values: dict[str, Any]) -> None:
        self._delivery.put(Event(kind=kind, values=values))

    def _put_texts(self, kind: EventKind, texts: Mapping[str, str]) -> None:
        for part in _parts(texts):
            self._put(kind, part)

    def _new_copy(self, name: str) -> Path:
        self._num_copies += 1
        folder = self._copies / str(self._num_copies)
        folder.mkdir()
        return folder / name


def _parts(values: Mapping[str, Value]) -> Iterator[dict[str, Value]]:
    items = list(values.items())
    for start in range(0, len(items), MAX_PARAMS):
        yield dict(items[start : start + MAX_PARAMS])
