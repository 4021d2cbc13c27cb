"""The tracked run of one stage: a child of its pipeline's run, ended with the truth about how the stage ended."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from microcoder_core import __version__
from microcoder_core.cpus import is_main_process
from microcoder_core.errors import InputError, StageStopped
from microcoder_core.tracking import NullTracker, Tracker
from microcoder_core.tracking.events import KIND_TAG, STAGE_TAG, VERSION_TAG, RunStart, Status, clean_label, new_run


def tracking_is_off() -> bool:
    """Whether `MICROCODER_TRACKING` says so."""
    return os.environ.get("MICROCODER_TRACKING", "").lower() in ("off", "0", "false", "no")


def pipeline_run_label(pipeline_run: str | None = None) -> str | None:
    """The pipeline run that a stage belongs to: as given, else `MICROCODER_PIPELINE_RUN`, else `KFP_RUN_ID`, else none."""
    label = pipeline_run or os.environ.get("MICROCODER_PIPELINE_RUN") or os.environ.get("KFP_RUN_ID")
    return clean_label(label) if label else None


@contextlib.contextmanager
def stage_run(stage: str, *, pipeline_run: str | None = None, spool: Path | None = None) -> Iterator[Tracker]:
    """A tracker for one run of `stage`, closed at the end: FINISHED, FAILED after an exception, KILLED after a signal.

    The run is the one that `MLFLOW_RUN_ID` names (which is logged into and left open: whoever made it ends it), else a new child of
    the pipeline's run. `MICROCODER_TRACKING=off` tracks nothing.

    Args:
        pipeline_run: Identifier of the pipeline run; None takes it from the environment.
        spool: Output folder of the stage, for `mlflow_spool.jsonl` where the tracking server stays away.
    """
    if stage != "train" and (processes := os.environ.get("WORLD_SIZE", "1")) != "1":
        raise InputError(f"{stage}: runs in one process, got {processes}; only train runs under a launcher")
    if tracking_is_off() or not is_main_process():
        yield NullTracker()
        return
    from microcoder_core.tracking.mlflow_tracker import MlflowTracker

    tracker = MlflowTracker(_stage_start(stage, pipeline_run_label(pipeline_run)))
    status: Status = "FAILED"
    try:
        yield tracker
        status = "FINISHED"
    except (StageStopped, KeyboardInterrupt):
        status = "KILLED"
        raise
    finally:
        tracker.close(status, spool)


def _stage_start(stage: str, label: str | None) -> RunStart:
    tags = {STAGE_TAG: stage, KIND_TAG: "stage", VERSION_TAG: __version__}
    return new_run(stage, tags, label, run_id=os.environ.get("MLFLOW_RUN_ID") or None)
