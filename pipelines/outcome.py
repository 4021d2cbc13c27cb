"""What a finished run is told as: lines on stdout, `report.html` and `summary.json`."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from microcoder_core.stages.results import EvaluationResult, ProbeResult, PromotionResult
from microcoder_core.storage.atomic import write_text
from microcoder_core.storage.datasets import Manifest, read_manifest
from microcoder_core.storage.stage_output import read_stage_result
from microcoder_core.tracking.addresses import without_password

Outputs = Mapping[str, Any]
"""Output artifacts of the training pipeline by name."""


def publish(root: Path, outputs: Outputs, seconds: float) -> None:
    """Puts the report and the run's numbers at the top of `root`.

    Args:
        seconds: What the whole run took, this time.
    """
    report = Path(outputs["report"].path)
    shutil.copyfile(report / "report.html", root / "report.html")
    summary = json.loads((report / "summary.json").read_text(encoding="utf-8"))
    summary["seconds"] |= {"report": outputs["report"].metadata["seconds"], "total": round(seconds, 3)}
    write_text(root / "summary.json", json.dumps(summary, indent=2) + "\n")


def outcome_lines(root: Path, outputs: Outputs) -> Iterator[str]:
    """The run in a few lines for a person."""
    for title, name in (("imported", "problems"), ("held out", "held_out"), ("curated", "curated")):
        yield _problems_line(title, read_manifest(Path(outputs[name].path)))
    yield from _probe_lines(read_stage_result(Path(outputs["probe"].path), "probe", ProbeResult))
    base, trained = (
        read_stage_result(Path(outputs[f"{role}_evaluation"].path), "evaluate", EvaluationResult) for role in ("base", "trained")
    )
    yield from _score_lines(base, trained)
    promotion = read_stage_result(Path(outputs["promotion"].path), "promote", PromotionResult)
    yield f"promotion   {'promoted' if promotion.promoted else 'not promoted'}: {promotion.reason}"
    yield f"model       {os.path.relpath(outputs['model'].path)}"
    yield f"report      {root / 'report.html'}"
    yield f"MLflow      {_mlflow_hint(root)}"


def _problems_line(title: str, manifest: Manifest) -> str:
    dropped = ", ".join(f"{count} {reason}" for reason, count in manifest.dropped.items()) or "none"
    return f"{title:11} {manifest.records_in} problems in, {manifest.problems} kept, dropped: {dropped}"


def _probe_lines(result: ProbeResult) -> Iterator[str]:
    for number, point in enumerate(result.grid):
        title = "" if number else "diversity"
        chosen = "  <- chosen" if point.temperature == result.temperature else ""
        yield f"{title:11} T {point.temperature:<4g} {point.diversity:.3f}, pass@1 {point.pass_at_1:.3f}{chosen}"
    yield f"temperature {result.temperature:g}: {result.reason}"


def _score_lines(base: EvaluationResult, trained: EvaluationResult) -> Iterator[str]:
    for k in base.pass_at_k:
        if k in ("1", "10") and k in trained.pass_at_k:
            before, after = base.pass_at_k[k], trained.pass_at_k[k]
            yield f"{'pass@' + k:11} base {before:.3f} -> trained {after:.3f} ({after - before:+.3f}) on {base.problems} held-out problems"
    yield f"{'':11} diversity base {base.diversity:.3f} -> trained {trained.diversity:.3f}"


def _mlflow_hint(root: Path) -> str:
    server = os.environ.get("MLFLOW_TRACKING_URI")
    program = os.path.relpath(Path(sys.executable).with_name("mlflow"))
    return without_password(server) if server else f"{program} ui --backend-store-uri sqlite:///{root / 'mlflow.db'}"
