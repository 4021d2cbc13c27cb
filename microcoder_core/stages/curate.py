"""Stage curate: keeps the problems that are fit to train on, each other one with the reason why not."""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from microcoder_core.config import Config
from microcoder_core.data.constraints import ConstraintConfig, apply_constraints
from microcoder_core.data.duplicates import DuplicateConfig, DuplicateFilter
from microcoder_core.data.overlap import OverlapConfig, OverlapFilter
from microcoder_core.data.verify import VerifyConfig, verified
from microcoder_core.errors import JudgeError
from microcoder_core.judge.judge import JudgeConfig, open_judge
from microcoder_core.progress import track
from microcoder_core.records import Dropped, Problem
from microcoder_core.stages.import_problems import problem_counts
from microcoder_core.storage.atomic import check_replaceable
from microcoder_core.storage.datasets import (
    DATASET_KIND,
    DatasetWriter,
    LineageStep,
    Manifest,
    content_sha256,
    count_problems,
    lineage,
    read_problems,
)
from microcoder_core.tracking import Tracker

logger = logging.getLogger(__name__)

Record = Problem | Dropped


class CurateConfig(Config):
    """What a problem must be to be kept. The parts are applied in this order, duplicates last: a problem repeats only one that was kept."""

    constraints: ConstraintConfig = ConstraintConfig()
    """Bounds on words and tests."""
    overlap: OverlapConfig = OverlapConfig()
    """When a problem counts as one of a data set to exclude."""
    verify: VerifyConfig = VerifyConfig()
    """Whether reference and wrong solutions are judged."""
    duplicates: DuplicateConfig = DuplicateConfig()
    """Which likeness makes a duplicate."""
    judge: JudgeConfig = JudgeConfig()
    """How solutions are judged."""


def curate(config: CurateConfig, *, problems: Path, exclude: Sequence[Path] = (), out: Path, tracker: Tracker) -> Manifest:
    """Writes the problems worth keeping as a data set at `out`.

    One pass, streamed: memory holds hashes, and the few problems that wait for the judge.

    Args:
        exclude: Data sets (benchmarks, held-out problems) that no kept problem may overlap with.

    Raises:
        InputError: An input that is missing, damaged or empty.
        JudgeError: Nothing was kept, and the judge failed on some of it.
    """
    check_replaceable(out, DATASET_KIND)
    step = _lineage_step(config, problems, exclude)
    overlap = OverlapFilter(config.overlap, itertools.chain.from_iterable(map(read_problems, exclude)))
    with contextlib.ExitStack() as stack:
        writer = stack.enter_context(DatasetWriter(out, step, lineage(problems)))
        records: Iterator[Record] = track(read_problems(problems), "curate", count_problems(problems))
        records = _each(partial(apply_constraints, config=config.constraints), records)
        records = _each(overlap, records)
        if config.verify.references or config.verify.wrong_solutions:
            judge = stack.enter_context(open_judge(config.judge))
            records = verified(records, judge.submit, config.verify)
        failed: Dropped | None = None
        for record in _each(DuplicateFilter(config.duplicates), records):
            writer.take(record)
            failed = record if isinstance(record, Dropped) and record.reason == "judge_error" else failed
        if failed and not writer.num_problems:
            raise JudgeError(f"no problem was kept, and the judge failed ({failed.record_id}: {failed.detail}); mend it, then curate again")
    if not writer.manifest.problems:
        logger.warning("%s: no problem was kept; dropped.jsonl there says why", out)
    tracker.log_params(config.flat())
    tracker.log_metrics(problem_counts(writer.manifest))
    tracker.log_dataset(problems, "curate input")
    tracker.log_dataset(out, "curated")
    return writer.manifest


def _lineage_step(config: CurateConfig, problems: Path, exclude: Sequence[Path]) -> LineageStep:
    inputs = {"problems": content_sha256(problems)}
    inputs |= {f"exclude_{number}": content_sha256(path) for number, path in enumerate(exclude)}
    settings = config.model_copy(update={"judge": config.judge.without_place()})
    return LineageStep(stage="curate", config_sha256=settings.fingerprint(), inputs=inputs)


def _each(rule: Callable[[Problem], Record], records: Iterable[Record]) -> Iterator[Record]:
    """Each record that still stands after `rule`, and those dropped before."""
    for record in records:
        yield record if isinstance(record, Dropped) else rule(record)
