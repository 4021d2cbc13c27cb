"""Stage `report`: one self-contained HTML page about a run, and its numbers.

OUT/
    report.html     opens anywhere: no script, no request, light and dark
    summary.json    the numbers that a script reads
    stage.json
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

from pydantic import Field

from microcoder_core.config import Config
from microcoder_core.stages.report_page.inputs import Folders, read_run
from microcoder_core.stages.report_page.page import render_page
from microcoder_core.stages.report_page.summary import summarise
from microcoder_core.storage.atomic import atomic_folder, check_replaceable, write_text
from microcoder_core.storage.datasets import content_sha256
from microcoder_core.storage.stage_output import STAGE_FILE, StageRecord, write_stage_record
from microcoder_core.tracking import Tracker

PAGE_FILE = "report.html"
SUMMARY_FILE = "summary.json"


class ReportConfig(Config):
    """What the page shows."""

    title: Annotated[str, Field(min_length=1)] = "microcoder run"
    """Title of the page."""
    num_samples: Annotated[int, Field(ge=0)] = 5
    """Completions shown, their verdicts as varied as can be. Chosen."""
    sample_chars: Annotated[int, Field(ge=100)] = 6000
    """A longer prompt or completion is shown without its middle. Chosen."""


def report(
    config: ReportConfig,
    *,
    curated: Path,
    probe: Path | None,
    trained: Path,
    base_evaluation: Path,
    trained_evaluation: Path,
    promotion: Path | None,
    out: Path,
    tracker: Tracker,
    seconds: Mapping[str, float] = MappingProxyType({}),
) -> Path:
    """Writes the page about a run; returns its path.

    Args:
        curated: The problems that were trained on.
        probe: Output of stage probe; None where it did not run.
        promotion: Output of stage promote; None where it did not run.
        seconds: How long each stage took, by name, in the order to show.

    Raises:
        InputError: A folder that is missing, unfinished or of another stage.
    """
    check_replaceable(out, "report")
    folders = Folders(
        curated=curated,
        probe=probe,
        trained=trained,
        base_evaluation=base_evaluation,
        trained_evaluation=trained_evaluation,
        promotion=promotion,
    )
    run = read_run(folders, seconds, config.num_samples, config.sample_chars)
    summary = summarise(run)
    with atomic_folder(out, "report") as folder:
        write_text(folder / PAGE_FILE, render_page(run, summary, config.title))
        write_text(folder / SUMMARY_FILE, summary.model_dump_json(indent=2) + "\n")
        result = summary.model_dump(mode="json", exclude={"seconds"})  # times differ from run to run
        write_stage_record(
            folder, StageRecord(stage="report", config=config.model_dump(mode="json"), inputs=_input_hashes(folders), result=result)
        )
    tracker.log_params(config.flat())
    tracker.log_artifact(out / PAGE_FILE)
    tracker.log_artifact(out / SUMMARY_FILE)
    return out / PAGE_FILE


def _input_hashes(folders: Folders) -> dict[str, str]:
    """Content hash of each input by its role: of a data set its problems', of a stage its record's."""
    stages = {role: folder for role, folder in vars(folders).items() if folder is not None and role != "curated"}
    hashes = {role: hashlib.sha256((folder / STAGE_FILE).read_bytes()).hexdigest() for role, folder in stages.items()}
    return {"curated": content_sha256(folders.curated), **hashes}
