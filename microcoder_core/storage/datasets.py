"""Data sets of problems: a folder of Parquet shards with a manifest, or a JSON Lines file.

    DATASET/
        manifest.json            counts, schema version, content hash, lineage; written last: without it the set is not whole
        problems-00000.parquet   `SHARD_ROWS` problems each
        dropped.jsonl            each record that the stage left out, with its reason

Tests, checker and difficulty scores are JSON text inside Parquet: their shapes differ from problem to problem, which no single
Arrow schema holds.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Self

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from microcoder_core.errors import InputError
from microcoder_core.records import Dropped, Problem, Record, parse_record
from microcoder_core.storage.atomic import atomic_folder, write_text
from microcoder_core.storage.rows import JSONL_SUFFIXES, count_rows, dump_row, is_jsonl, read_rows, write_rows

SCHEMA_VERSION = 1
DATASET_KIND = "data set"
SHARD_ROWS = 1000
_SHARD_BYTES = 64 * 1024 * 1024
_JSON_COLUMNS = ("tests", "checker", "difficulty_scores")
_LIST_COLUMNS = ("tags", "reference_solutions", "wrong_solutions")
_TYPES = {"time_limit_s": pa.float64(), "memory_limit_mib": pa.int64()} | dict.fromkeys(_LIST_COLUMNS, pa.list_(pa.string()))
SCHEMA = pa.schema([(name, _TYPES.get(name, pa.string())) for name in Problem.model_fields])


class LineageStep(Record):
    """One stage that a data set went through."""

    stage: str
    config_sha256: str = ""
    inputs: dict[str, str] = Field(default_factory=dict)
    """Content hash of each input by its role."""
    dropped: dict[str, int] = Field(default_factory=dict)
    """Number of records that it left out, by reason."""


class Manifest(Record):
    """What a finished data set says of itself."""

    schema_version: int = SCHEMA_VERSION
    problems: int
    dropped: dict[str, int] = Field(default_factory=dict)
    """Number of records left out, by reason."""
    shards: tuple[Annotated[str, Field(pattern=r"^problems-\d+\.parquet$")], ...] = ()
    content_sha256: str
    """Over the problems in order, whatever the shards."""
    lineage: tuple[LineageStep, ...] = ()

    @property
    def records_in(self) -> int:
        """Every record that the stage saw."""
        return self.problems + sum(self.dropped.values())

    @property
    def dropped_since_source(self) -> dict[str, int]:
        """Number of records that this stage and those before it left out, by reason."""
        total: Counter[str] = Counter()
        for step in self.lineage:
            total.update(step.dropped)
        return dict(sorted(total.items()))


class DatasetWriter:
    """Writes a data set that appears whole or not at all; memory holds one shard at most.

    Use as a context manager: `add` problems, `drop` the rest. After the block, `manifest` tells the counts.
    """

    manifest: Manifest
    num_problems: int
    """Added so far."""

    def __init__(self, target: Path, step: LineageStep, earlier: Iterable[LineageStep] = ()) -> None:
        self._target = target
        self._earlier, self._step = tuple(earlier), step
        self._rows: list[dict[str, Any]] = []
        self._pending_bytes = 0
        self._shards: list[str] = []
        self.num_problems = 0
        self._hash = hashlib.sha256()
        self._dropped: Counter[str] = Counter()
        self._exit = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._folder = self._exit.enter_context(atomic_folder(self._target, DATASET_KIND))
        self._dropped_stream = self._exit.enter_context((self._folder / "dropped.jsonl").open("w", encoding="utf-8"))
        return self

    def add(self, problem: Problem) -> None:
        """Appends one problem."""
        row = problem_row(problem)
        line = dump_row(row)
        self._hash.update(line.encode())
        self._rows.append(_to_columns(row))
        self.num_problems += 1
        self._pending_bytes += len(line)
        if len(self._rows) >= SHARD_ROWS or self._pending_bytes >= _SHARD_BYTES:
            self._write_shard()

    def take(self, record: Problem | Dropped) -> None:
        """Appends a problem, or keeps why a record is left out."""
        if isinstance(record, Dropped):
            self.drop(record)
        else:
            self.add(record)

    def drop(self, dropped: Dropped) -> None:
        """Counts and keeps a record that is left out."""
        self._dropped[dropped.reason] += 1
        self._dropped_stream.write(dump_row(dropped.model_dump(mode="json")))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            self._exit.__exit__(kind, error, trace)
            return
        with self._exit:
            if self._rows or not self._shards:
                self._write_shard()
            self._dropped_stream.close()
            dropped = dict(sorted(self._dropped.items()))
            self.manifest = Manifest(
                problems=self.num_problems,
                dropped=dropped,
                shards=tuple(self._shards),
                content_sha256=self._hash.hexdigest(),
                lineage=(*self._earlier, self._step.model_copy(update={"dropped": dropped})),
            )
            write_text(self._folder / "manifest.json", self.manifest.model_dump_json(indent=2) + "\n")

    def _write_shard(self) -> None:
        name = f"problems-{len(self._shards):05d}.parquet"
        pq.write_table(pa.Table.from_pylist(self._rows, schema=SCHEMA), self._folder / name, compression="zstd")
        self._shards.append(name)
        self._rows = []
        self._pending_bytes = 0


def problem_row(problem: Problem) -> dict[str, Any]:
    """A problem as a JSON object: the fields that are set, in the order of the record."""
    return problem.model_dump(mode="json", exclude_defaults=True)


def read_manifest(dataset: Path) -> Manifest:
    """The manifest of a data set folder.

    Raises:
        InputError: No such folder, or one without a (valid) manifest: it is not a data set, or its stage did not finish.
    """
    file = dataset / "manifest.json"
    if not dataset.exists():
        raise InputError(f"{dataset}: no such data set; give a data set folder or a file named {' / '.join(JSONL_SUFFIXES)}")
    if not file.is_file():
        raise InputError(f"{dataset}: has no manifest.json, so it is no finished data set; run the stage that makes it again")
    try:
        row = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: cannot be read ({error})") from None
    manifest = parse_record(Manifest, row, str(file))
    if manifest.schema_version != SCHEMA_VERSION:
        raise InputError(f"{file}: schema_version must be {SCHEMA_VERSION}, got {manifest.schema_version}")
    return manifest


def read_problems(dataset: Path) -> Iterator[Problem]:
    """The problems of a data set folder or a JSON Lines file, in order, streamed.

    Raises:
        InputError: Not a data set, a row that is no Problem, or no problem at all.
    """
    empty = True
    for where, row in _read_rows(dataset):
        empty = False
        yield parse_record(Problem, row, where)
    if empty:
        raise InputError(f"{dataset}: holds no problem; give a data set with at least one")


def find_problem(dataset: Path, problem_id: str) -> Problem:
    """The problem of that id; raises InputError where there is none."""
    for problem in read_problems(dataset):
        if problem.problem_id == problem_id:
            return problem
    raise InputError(f"problem: {dataset} holds no problem {problem_id!r}; `microcoder data show {dataset}` lists them")


def content_sha256(dataset: Path) -> str:
    """The content hash of a data set folder or a JSON Lines file: equal problems give equal hashes."""
    if not _is_rows_file(dataset):
        return read_manifest(dataset).content_sha256
    digest = hashlib.sha256()
    for problem in read_problems(dataset):
        digest.update(dump_row(problem_row(problem)).encode())
    return digest.hexdigest()


def lineage(dataset: Path) -> tuple[LineageStep, ...]:
    """The stages that a data set went through; none for a JSON Lines file."""
    return () if _is_rows_file(dataset) else read_manifest(dataset).lineage


def count_problems(dataset: Path) -> int:
    """Number of problems (of rows, in a JSON Lines file), without reading them."""
    return count_rows(dataset) if _is_rows_file(dataset) else read_manifest(dataset).problems


def export_jsonl(problems: Iterable[Problem], target: Path) -> int:
    """Writes problems as JSON Lines (.gz, .zst by the name), whole or not at all; returns their number."""
    if not is_jsonl(target):
        raise InputError(f"{target}: must be named {' / '.join(JSONL_SUFFIXES)}")
    return write_rows(target, map(problem_row, problems))


def _is_rows_file(dataset: Path) -> bool:
    return is_jsonl(dataset) and not dataset.is_dir()


def _read_rows(dataset: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    if _is_rows_file(dataset):
        for number, row in read_rows(dataset):
            yield f"{dataset}:{number}", row
        return
    if dataset.is_file():
        raise InputError(f"{dataset}: must be a data set folder or a file named {' / '.join(JSONL_SUFFIXES)}")
    manifest = read_manifest(dataset)
    count = 0
    for shard in manifest.shards:
        for located_row in _read_shard(dataset / shard):
            count += 1
            yield located_row
    if count != manifest.problems:
        raise InputError(f"{dataset}: manifest.json says {manifest.problems} problems, the shards hold {count}; make the data set again")


def _read_shard(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    number = 0
    try:
        with pq.ParquetFile(file) as parquet:
            for batch in parquet.iter_batches(batch_size=64):
                for columns in batch.to_pylist():
                    yield f"{file} row {number}", _from_columns(columns)
                    number += 1
    except (OSError, pa.ArrowException, ValueError, TypeError) as error:
        raise InputError(f"{file}: cannot be read ({error}); the data set is damaged, make it again") from None


def _to_columns(row: dict[str, Any]) -> dict[str, Any]:
    return {key: json.dumps(value) if key in _JSON_COLUMNS else value for key, value in row.items()}


def _from_columns(columns: dict[str, Any]) -> dict[str, Any]:
    row = {key: value for key, value in columns.items() if value is not None}
    for key in _JSON_COLUMNS:
        if key in row:
            row[key] = json.loads(row[key])
    return row
