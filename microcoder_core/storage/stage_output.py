"""The record `stage.json` that every stage but those that write data sets leaves in its output folder, last of all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, Field

from microcoder_core import __version__
from microcoder_core.errors import InputError
from microcoder_core.records import Record, parse_record
from microcoder_core.storage.atomic import write_text

STAGE_FILE = "stage.json"

ResultType = TypeVar("ResultType", bound=BaseModel)


class StageRecord(Record):
    """What a finished stage says of itself. Holds no time and no run id: same input, config and seed give the same bytes."""

    stage: str
    version: str = __version__
    config: dict[str, Any] = Field(default_factory=dict)
    inputs: dict[str, str] = Field(default_factory=dict)
    """Content hash (of data sets and models) or name (models) of each input by its role."""
    result: dict[str, Any]


def write_stage_record(folder: Path, record: StageRecord) -> None:
    """Marks `folder` as the finished output of a stage."""
    write_text(folder / STAGE_FILE, record.model_dump_json(indent=2) + "\n")


def read_stage_record(folder: Path, stage: str) -> StageRecord:
    """The record of a finished stage.

    Raises:
        InputError: No such folder, an unfinished output, or the output of another stage.
    """
    file = folder / STAGE_FILE
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; give the output folder of stage {stage}")
    if not file.is_file():
        raise InputError(f"{folder}: has no {STAGE_FILE}, so it is no finished output; run stage {stage} again")
    try:
        row = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: cannot be read ({error})") from None
    if not isinstance(row, dict):
        raise InputError(f"{file}: must hold a JSON object, got {type(row).__name__}")
    record = parse_record(StageRecord, row, str(file))
    if record.stage != stage:
        raise InputError(f"{folder}: must be an output of stage {stage}, got one of stage {record.stage}")
    return record


def read_stage_result(folder: Path, stage: str, kind: type[ResultType]) -> ResultType:
    """The result of a finished stage, as a record of `kind`."""
    return parse_record(kind, read_stage_record(folder, stage).result, f"{folder / STAGE_FILE}: result")
