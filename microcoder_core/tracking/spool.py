"""A file of what a tracking server could not be told, and its sending later.

    python -m microcoder_core.tracking.spool OUT/mlflow_spool.jsonl

The first line says how the run begins; each other line is one event; artifacts are inside, so the file is all there is to keep.
Sending it twice does no harm.
"""

from __future__ import annotations

import base64
import dataclasses
import logging
import math
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from microcoder_core.errors import InputError, MicrocoderError
from microcoder_core.storage.atomic import atomic_file
from microcoder_core.storage.rows import dump_row, read_rows
from microcoder_core.tracking.events import RUN_KEY_TAG, Event, RunStart
from microcoder_core.tracking.mlflow_server import MlflowServer, connect

logger = logging.getLogger(__name__)

SPOOL_FILE = "mlflow_spool.jsonl"


class RunSender:
    """Sends events to one run, which is found or created at the first of them.

    Args:
        uri: Tracking server; None is the one that the environment names.
    """

    def __init__(self, start: RunStart, uri: str | None = None) -> None:
        self.run_id = start.run_id
        self._start = start
        self._uri = uri
        self._server: MlflowServer | None = None

    def send(self, events: Sequence[Event]) -> int:
        """Sends the first of `events`; returns how many. Raises what MLflow raises where the server does not take them."""
        if self._server is None:
            self._server = connect(self._uri)
        if self.run_id is None:
            self.run_id = self._server.find_or_create(self._start)
        return self._server.send(self.run_id, events)


def spool_path(out: Path | None, start: RunStart) -> Path:
    """Where to spool: in the stage's output folder, else beside it (no folder without a result may look like one), else here."""
    if out is not None and out.is_dir():
        path = out / SPOOL_FILE
    elif out is not None:
        path = out.parent / f"{out.name}.{SPOOL_FILE}"
    else:
        path = Path(SPOOL_FILE)
    return path.with_name(f"{start.tags[RUN_KEY_TAG][:8]}.{path.name}") if path.exists() else path


def write_spool(path: Path, start: RunStart, events: Iterable[Event]) -> None:
    """Writes the start of a run and its unsent events, whole or not at all."""
    with atomic_file(path) as stream:
        stream.write(dump_row(dataclasses.asdict(start)))
        for event in events:
            stream.write(dump_row(_packed(event)))


def replay(spool_file: Path, uri: str | None = None) -> str:
    """Sends a spool file to the tracking server; returns the id of the run.

    Raises:
        InputError: Not a spool file.
        MicrocoderError: The server does not take it; the file is as it was.
    """
    with tempfile.TemporaryDirectory(prefix="microcoder-replay-") as folder:
        start, events = _read_spool(spool_file, Path(folder))
        sender = RunSender(start, uri)
        try:
            while events:
                events = events[sender.send(events) :]
        except Exception as error:
            reason = " ".join(str(error).split())[:300]
            raise MicrocoderError(f"{spool_file}: not sent ({reason}); check MLFLOW_TRACKING_URI and send it again") from error
    return str(sender.run_id)


def _read_spool(spool_file: Path, folder: Path) -> tuple[RunStart, list[Event]]:
    rows = [row for _, row in read_rows(spool_file)]
    try:
        return RunStart(**rows[0]), [_unpacked(row, folder / str(number)) for number, row in enumerate(rows[1:])]
    except (IndexError, KeyError, TypeError, ValueError):
        raise InputError(f"{spool_file}: must be a {SPOOL_FILE} that a stage has left") from None


def _packed(event: Event) -> dict[str, Any]:
    row = dataclasses.asdict(event)
    if event.kind == "artifact":
        copy = Path(row["values"].pop("copy"))
        row["values"] |= {"name": copy.name, "content_base64": base64.b64encode(copy.read_bytes()).decode()}
    if event.kind == "metrics":  # NaN and infinity, which JSON lacks, as text
        row["values"]["metrics"] = {
            key: number if math.isfinite(number) else str(number) for key, number in row["values"]["metrics"].items()
        }
    return row


def _unpacked(row: dict[str, Any], folder: Path) -> Event:
    event = Event(**row)
    if event.kind == "metrics":
        metrics = {key: float(number) for key, number in event.values["metrics"].items()}
        return dataclasses.replace(event, values={**event.values, "metrics": metrics})
    if event.kind != "artifact":
        return event
    folder.mkdir()
    copy = folder / Path(event.values["name"]).name
    copy.write_bytes(base64.b64decode(event.values["content_base64"]))
    return dataclasses.replace(event, values={"copy": str(copy), "folder": event.values["folder"]})


def _main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if len(sys.argv) < 2:
        sys.exit("usage: python -m microcoder_core.tracking.spool FILE ...")
    for name in sys.argv[1:]:
        try:
            logger.info("%s: sent to run %s", name, replay(Path(name)))
        except (InputError, MicrocoderError) as error:
            sys.exit(f"failed: {error}")


if __name__ == "__main__":
    _main()
