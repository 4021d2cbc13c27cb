"""What the page tells of, read from the output folders of the stages."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from microcoder_core.errors import InputError
from microcoder_core.records import parse_record
from microcoder_core.stages.model_source import model_sha256
from microcoder_core.stages.report_page.samples import Sample, choose_samples
from microcoder_core.stages.results import EvaluationResult, ProbeResult, ProblemScore, PromotionResult, TrainResult
from microcoder_core.storage.datasets import Manifest, content_sha256, read_manifest, read_problems
from microcoder_core.storage.rows import is_jsonl, read_rows
from microcoder_core.storage.stage_output import StageRecord, read_stage_record

ResultType = TypeVar("ResultType", ProbeResult, PromotionResult)


@dataclass(frozen=True, kw_only=True)
class Folders:
    """Where the outputs of the stages are; a stage that did not run has None."""

    curated: Path
    probe: Path | None
    trained: Path
    base_evaluation: Path
    trained_evaluation: Path
    promotion: Path | None


@dataclass(frozen=True)
class Series:
    """One metric at the steps that recorded it; NaN and infinity count as not recorded."""

    steps: tuple[int, ...]
    values: tuple[float, ...]

    def __bool__(self) -> bool:
        return bool(self.steps)


@dataclass(frozen=True)
class History:
    """The metrics of training by step."""

    rows: Mapping[int, Mapping[str, float]] = field(default_factory=dict)

    def series(self, metric: str) -> Series:
        """One metric over the steps, in order."""
        points = [(step, float(row[metric])) for step, row in sorted(self.rows.items()) if _is_finite(row.get(metric))]
        return Series(tuple(step for step, _ in points), tuple(value for _, value in points))

    def names(self) -> list[str]:
        """Every metric that some step recorded, in the order of first appearance."""
        return list(dict.fromkeys(name for row in self.rows.values() for name in row if name != "step"))


@dataclass(frozen=True)
class Movement:
    """How many problems the trained model solves more often, as often, less often; and which it solves at all."""

    better: int
    same: int
    worse: int
    newly_solved: int
    no_longer_solved: int


@dataclass(frozen=True, kw_only=True)
class Run:
    """All that the page tells."""

    manifest: Manifest
    probe: ProbeResult | None
    train: TrainResult
    base: EvaluationResult
    trained: EvaluationResult
    promotion: PromotionResult | None
    history: History
    movement: Movement | None
    samples: tuple[Sample, ...]
    records: Mapping[str, StageRecord]
    """What each stage said of itself, by role."""
    seconds: Mapping[str, float]


def read_run(folders: Folders, seconds: Mapping[str, float], num_samples: int, sample_chars: int) -> Run:
    """The run whose stages left `folders`.

    Raises:
        InputError: A folder that is missing, unfinished or of another stage; an evaluation of another model; a damaged file.
    """
    records = _read_records(folders)
    if records["evaluate trained"].inputs.get("model_sha256") != model_sha256(str(folders.trained)):
        raise InputError(f"{folders.trained_evaluation}: must be an evaluation of {folders.trained}, got one of other weights")
    return Run(
        manifest=_read_manifest(folders.curated),
        probe=_result(records, "probe", ProbeResult),
        train=parse_record(TrainResult, records["train"].result, f"{folders.trained}: result"),
        base=parse_record(EvaluationResult, records["evaluate base"].result, f"{folders.base_evaluation}: result"),
        trained=parse_record(EvaluationResult, records["evaluate trained"].result, f"{folders.trained_evaluation}: result"),
        promotion=_result(records, "promote", PromotionResult),
        history=_read_history(folders.trained / "training" / "metrics.jsonl"),
        movement=_read_movement(folders.base_evaluation / "problems.jsonl", folders.trained_evaluation / "problems.jsonl"),
        samples=choose_samples(
            folders.trained_evaluation / "completions.jsonl", folders.trained / "training" / "samples.jsonl", num_samples, sample_chars
        ),
        records=records,
        seconds=seconds,
    )


def _read_records(folders: Folders) -> dict[str, StageRecord]:
    places = {
        "probe": (folders.probe, "probe"),
        "train": (folders.trained, "train"),
        "evaluate base": (folders.base_evaluation, "evaluate"),
        "evaluate trained": (folders.trained_evaluation, "evaluate"),
        "promote": (folders.promotion, "promote"),
    }
    return {role: read_stage_record(folder, stage) for role, (folder, stage) in places.items() if folder is not None}


def _result(records: Mapping[str, StageRecord], role: str, kind: type[ResultType]) -> ResultType | None:
    return parse_record(kind, records[role].result, f"{role}: result") if role in records else None


def _read_manifest(curated: Path) -> Manifest:
    if is_jsonl(curated):
        return Manifest(problems=sum(1 for _ in read_problems(curated)), content_sha256=content_sha256(curated))
    return read_manifest(curated)


def _read_history(file: Path) -> History:
    """The metrics by step; of a step that was run again after a resume, the last."""
    if not file.is_file():
        return History()
    rows: dict[int, Mapping[str, float]] = {}
    for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").split("\n"), start=1):
        if not line.strip():
            continue
        row = _parse_metrics(line, f"{file}:{number}")
        rows[row["step"]] = row
    return History(rows)


def _parse_metrics(line: str, where: str) -> dict[str, Any]:
    """One step. NaN and Infinity may stand here, unlike in other rows: a run that went wrong is one to look at."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not JSON ({error}); each line must be one JSON object") from None
    if not isinstance(row, dict) or not isinstance(row.get("step"), int):
        raise InputError(f"{where}: must be a JSON object with a whole number as step, got {line[:80]!r}")
    return row


def _read_movement(base_file: Path, trained_file: Path) -> Movement | None:
    if not (base_file.is_file() and trained_file.is_file()):
        return None
    base, trained = _read_rates(base_file), _read_rates(trained_file)
    pairs = [(base[problem], trained[problem]) for problem in base if problem in trained]
    return Movement(
        better=sum(after > before for before, after in pairs),
        same=sum(after == before for before, after in pairs),
        worse=sum(after < before for before, after in pairs),
        newly_solved=sum(before == 0 < after for before, after in pairs),
        no_longer_solved=sum(after == 0 < before for before, after in pairs),
    )


def _read_rates(file: Path) -> dict[str, float]:
    scores = [parse_record(ProblemScore, row, f"{file}:{line}") for line, row in read_rows(file)]
    return {score.problem_id: score.correct / (score.samples - score.ungraded) for score in scores if score.samples > score.ungraded}


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
