"""Stage import: a data set of Problems from a source in a public format."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from microcoder_core.config import Config
from microcoder_core.data.importers import IMPORTERS
from microcoder_core.data.importers.drills import check_split
from microcoder_core.errors import InputError
from microcoder_core.progress import track
from microcoder_core.records import Dropped, Problem
from microcoder_core.storage.atomic import check_replaceable
from microcoder_core.storage.datasets import DATASET_KIND, DatasetWriter, LineageStep, Manifest, content_sha256, lineage
from microcoder_core.storage.rows import count_rows, is_jsonl
from microcoder_core.tracking import Tracker


class ImportConfig(Config):
    """What is imported."""

    format: Literal["drills", "humaneval", "jsonl", "mbpp"]
    """Format of the source."""


def import_problems(config: ImportConfig, *, source: str, out: Path, tracker: Tracker) -> Manifest:
    """Writes the problems of `source` as a data set at `out`; every record that is no usable problem is dropped with a reason.

    Args:
        source: A file, or a data set folder for format `jsonl`; for format `drills` the split, `train` or `held_out`.

    Raises:
        InputError: A source that is missing, damaged or holds no problem at all.
    """
    check_replaceable(out, DATASET_KIND)
    step = LineageStep(stage="import", config_sha256=config.fingerprint(), inputs={"source": _source_sha256(config.format, source)})
    earlier = lineage(Path(source)) if config.format == "jsonl" and Path(source).is_dir() else ()
    seen: set[bytes] = set()
    first_dropped: Dropped | None = None
    with DatasetWriter(out, step, earlier) as writer:
        for record in _records(config.format, source):
            record = _with_new_id(record, seen)
            if first_dropped is None and isinstance(record, Dropped):
                first_dropped = record
            writer.take(record)
        if not seen:
            raise InputError(_nothing_imported(config.format, source, first_dropped))
    tracker.log_params({**config.flat(), "source": source})
    tracker.log_metrics(problem_counts(writer.manifest))
    tracker.log_dataset(out, "imported")
    return writer.manifest


def check_source(kind: str, source: str) -> None:
    """Raises InputError where there is nothing at `source` that could be in format `kind`; does not read it."""
    if kind == "drills":
        check_split(source)
    elif not Path(source).exists():
        raise InputError(f"{source}: no such file")


def _with_new_id(record: Problem | Dropped, seen: set[bytes]) -> Problem | Dropped:
    """`record`, or a dropped one where an earlier problem has its id; `seen` holds a hash of each id."""
    if isinstance(record, Dropped):
        return record
    key = hashlib.blake2b(record.problem_id.encode(), digest_size=16).digest()
    if key in seen:
        return Dropped(record_id=record.problem_id, reason="duplicate_id", detail="an earlier record has this id")
    seen.add(key)
    return record


def problem_counts(manifest: Manifest) -> dict[str, float]:
    """The counts of a stage that writes problems, as tracked."""
    counts: dict[str, float] = {"problems/in": manifest.records_in, "problems/kept": manifest.problems}
    return counts | {f"problems/dropped_{reason}": number for reason, number in manifest.dropped.items()}


def _source_sha256(kind: str, source: str) -> str:
    path = Path(source)
    if kind == "drills":
        return source  # a split's name
    if path.is_dir():
        if kind != "jsonl":
            raise InputError(f"{source}: is a folder; give the file of it that is in format {kind}")
        return content_sha256(path)
    if not path.is_file():
        return source  # for the importer to say
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _records(kind: str, source: str) -> Iterator[Problem | Dropped]:
    """The source's records, with a progress bar where their number can be told beforehand."""
    records, path = IMPORTERS[kind](source), Path(source)
    return track(records, "import", count_rows(path)) if kind != "drills" and is_jsonl(path) and path.is_file() else records


def _nothing_imported(kind: str, source: str, dropped: Dropped | None) -> str:
    if dropped is None:
        return f"{source}: holds no record; give a source with at least one"
    return f"{source}: no record is a usable problem in format {kind}; the first one was dropped as {dropped.reason} ({dropped.detail})"
