"""The folder of a local run.

DIR/
    run.json       which run this is, with its parameters; written first
    report.html    summary.json    written last
    artifacts/     outputs of the tasks, as KFP lays them
    cache/         what is done, so that `--resume` does not repeat it
    work/          checkpoints of the stage that was stopped
    logs/          the whole log of each task
    mlflow.db      mlruns/         unless MLFLOW_TRACKING_URI names a server
"""

from __future__ import annotations

import json
import logging
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from microcoder_core.errors import InputError
from microcoder_core.records import Record, parse_record
from microcoder_core.storage.atomic import write_text
from microcoder_core.storage.lock import LOCK_FILE

logger = logging.getLogger(__name__)

_OURS = ("artifacts", "cache", "work", "logs", "mlruns", "mlflow.db", "mlflow.db.lock", "report.html", "summary.json", "run.json")


class RunRecord(Record):
    """Which run a folder holds."""

    pipeline: str
    pipeline_run: str = Field(default_factory=lambda: uuid.uuid4().hex)
    parameters: dict[str, Any]


@dataclass(frozen=True)
class RunFolder:
    """A folder for one local run."""

    root: Path

    @property
    def record(self) -> Path:
        return self.root / "run.json"

    def read(self) -> RunRecord | None:
        """The run that the folder holds, or None."""
        if not self.record.is_file():
            return None
        try:
            row = json.loads(self.record.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"{self.record}: cannot be read ({error}); give a new folder") from None
        if not isinstance(row, dict):
            raise InputError(f"{self.record}: must hold a JSON object; give a new folder")
        return parse_record(RunRecord, row, str(self.record))

    def start(self, pipeline: str, parameters: Mapping[str, Any]) -> RunRecord:
        """A new run, in place of an earlier one.

        Raises:
            InputError: The folder holds something else.
        """
        earlier = self.read()
        if earlier is None and any(path.name != LOCK_FILE for path in self.root.iterdir()):
            raise InputError(f"{self.root}: is not empty and holds no pipeline run; give a new folder or empty this one")
        if earlier is not None:
            logger.info("%s: replacing the earlier run", self.root)
            for name in _OURS:
                _remove(self.root / name)
        record = RunRecord(pipeline=pipeline, parameters=dict(parameters))
        write_text(self.record, record.model_dump_json(indent=2) + "\n")
        return record

    def resume(self, parameters: Mapping[str, Any]) -> RunRecord:
        """The run to go on with.

        Args:
            parameters: Must be those of the run; none at all stands for them.

        Raises:
            InputError: No run, or one with other parameters.
        """
        record = self.read()
        if record is None:
            raise InputError(f"{self.root}: holds no pipeline run to resume; leave out --resume to start one")
        if parameters and parameters != record.parameters:
            differing = sorted(key for key in {**parameters, **record.parameters} if parameters.get(key) != record.parameters.get(key))
            raise InputError(f"--resume: the run in {self.root} has other parameters ({', '.join(differing)}); leave them or --resume out")
        return record


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
