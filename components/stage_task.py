"""What every component does around its one call into the core: tracked run, metadata, exit code, what the KFP UI shows."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from components.summaries import Summary
from microcoder_core.errors import EXIT_FAILED, EXIT_USAGE, InputError, MicrocoderError, StageStopped
from microcoder_core.interrupt import sigterm_raises, stop_exit_code
from microcoder_core.tracking import Tracker

logger = logging.getLogger(__name__)

WORK_VARIABLE = "MICROCODER_WORK"
"""Names a folder that outlives a killed task, where checkpoints go; the local runner sets it."""


class Artifact(Protocol):
    """What is used of a `kfp.dsl.Artifact`."""

    path: str
    metadata: dict[str, Any]


@dataclass
class StageTask:
    """One component at work."""

    tracker: Tracker
    summary: Summary = field(default_factory=lambda: Summary({}, ""))

    def finish(self, summary: Summary) -> None:
        """States the result, to be shown when the task ends well."""
        self.summary = summary


@contextlib.contextmanager
def stage_task(
    stage: str, outputs: Sequence[Artifact], metrics: Artifact, summary: Artifact, *, model_uri: str = ""
) -> Iterator[StageTask]:
    """Runs a component's body as a tracked stage.

    Args:
        stage: Name of the tracked run, such as `evaluate_base`.
        outputs: What the stage makes; each gets the metadata `stage`, `mlflow_run_id`, `seconds` and the summary's numbers.
        metrics: The `dsl.Metrics` output.
        summary: The `dsl.Markdown` output.
        model_uri: Where the trained model will lie for others, as MLflow is told; a path of this machine needs no telling.
    """
    from microcoder_core.tracking.stage_run import stage_run

    log_to_stderr()
    if "://" in model_uri:
        os.environ["MICROCODER_MODEL_URI"] = model_uri
    started = time.monotonic()
    with exit_codes(), stage_run(stage, spool=Path(outputs[0].path)) as tracker:
        task = StageTask(tracker)
        yield task
    made = {"stage": stage, "mlflow_run_id": tracker.run_id or "", "seconds": round(time.monotonic() - started, 3)}
    for artifact in outputs:
        artifact.metadata.update(made | task.summary.numbers)
    show_numbers(metrics, task.summary.numbers)
    show_text(summary, task.summary.markdown)


def open_run(name: str, params: Mapping[str, Any]) -> str:
    """The id of this pipeline run's parent run in MLflow; empty where there is no server, or nothing says which pipeline run this is."""
    from microcoder_core.tracking.pipeline_run import open_pipeline_run
    from microcoder_core.tracking.stage_run import pipeline_run_label

    log_to_stderr()
    label = pipeline_run_label()
    if label is None:
        logger.warning("neither MICROCODER_PIPELINE_RUN nor KFP_RUN_ID is set: the stages are tracked without a parent run")
        return ""
    return open_pipeline_run(label, name, params) or ""


def close_run(stage_runs: Mapping[str, str]) -> None:
    """Ends this pipeline run's parent run, and shows the stages among `stage_runs` that came from the cache."""
    from microcoder_core.tracking.pipeline_run import close_pipeline_run, record_cached_stages
    from microcoder_core.tracking.stage_run import pipeline_run_label

    if label := pipeline_run_label():
        record_cached_stages(label, stage_runs)
        close_pipeline_run(label, "FINISHED")


def made_by(artifacts: Iterable[Artifact]) -> tuple[dict[str, str], dict[str, float]]:
    """The tracked run that made each artifact, and the seconds it took, by stage."""
    made = {str(artifact.metadata["stage"]): artifact.metadata for artifact in artifacts if "stage" in artifact.metadata}
    runs = {stage: str(metadata["mlflow_run_id"]) for stage, metadata in made.items() if metadata["mlflow_run_id"]}
    return runs, {stage: float(metadata["seconds"]) for stage, metadata in made.items()}


def show_numbers(metrics: Artifact, numbers: Mapping[str, float]) -> None:
    """Shows numbers in the KFP UI.

    They are written to a file as well: the local cache takes an output without a file for missing, and runs the task again.
    """
    metrics.metadata.update(numbers)
    show_text(metrics, json.dumps(dict(numbers), indent=2) + "\n")


def show_text(output: Artifact, text: str) -> None:
    """Writes what a Markdown, HTML or Metrics output holds."""
    path = Path(output.path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def work_folder(stage: str) -> Path | None:
    """Where a stage keeps what a killed task goes on from; None where only its output folder is left to it."""
    parent = os.environ.get(WORK_VARIABLE)
    return Path(parent) / stage if parent else None


@contextlib.contextmanager
def exit_codes() -> Iterator[None]:
    """Turns the errors that a user can act on into one line on stderr and the exit code of the command line."""
    try:
        with sigterm_raises():
            yield
    except InputError as error:
        _exit(f"error: {error}", EXIT_USAGE)
    except StageStopped as error:
        _exit(str(error), error.exit_code)
    except KeyboardInterrupt as stop:
        _exit("cancelled", stop_exit_code(stop))
    except MicrocoderError as error:
        _exit(f"failed: {error}", EXIT_FAILED)


def log_to_stderr() -> None:
    """Logs to stderr, one short line a record: all of ours, of the rest (KFP's executor among them) what is a warning or worse."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", stream=sys.stderr, force=True)
    for ours in ("microcoder_core", "components"):
        logging.getLogger(ours).setLevel(logging.INFO)


def _exit(message: str, exit_code: int) -> None:
    logger.error("%s", message)
    sys.exit(exit_code)
