"""What lets a run that was killed at any moment go on as if it had not been.

    WORK/
        training.json              what the run is of: configuration, data, model; written first
        checkpoints/step-000010/   model.safetensors, optimizer.pt, the three files above and below as they were, state.json (last);
                                   published by rename, and copied to an S3 store where there is one
        rollouts/step-000011-0.jsonl judged completions of steps that no checkpoint covers yet
        metrics.jsonl  samples.jsonl  tensorboard/

Every random draw is derived from (seed, step, ...), so there is no generator state to keep. A rollout is saved with its verdicts
before the weights move: judging it again could time differently.
"""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file

from microcoder_core.errors import DamageError, InputError, StorageError
from microcoder_core.grpo.config import TrainConfig
from microcoder_core.grpo.health import HealthState
from microcoder_core.grpo.rollout import Group, Sample, Task
from microcoder_core.grpo.schedule import TemperatureState
from microcoder_core.grpo.weights import Moments
from microcoder_core.records import Completion, Judgement, Record, parse_record
from microcoder_core.storage.atomic import atomic_file, publish_folder, write_text
from microcoder_core.storage.lock import LOCK_FILE, locked_folder
from microcoder_core.storage.rows import dump_row, read_rows

if TYPE_CHECKING:
    from microcoder_core.storage.s3 import FolderStore

logger = logging.getLogger(__name__)

METRICS_FILE = "metrics.jsonl"
SAMPLES_FILE = "samples.jsonl"
TENSORBOARD_FOLDER = "tensorboard"
_RUN_FILE = "training.json"
_CARRIED = (_RUN_FILE, METRICS_FILE, SAMPLES_FILE)
"""Files of a run that go into each checkpoint, so that it can go on from that alone."""
_FREE_TO_CHANGE = {
    *("max_steps", "epochs", "checkpoint", "health", "memory_check", "judge_deadline_s", "sample_steps", "torch_threads", "parallel"),
}
"""Settings that a resumed run may change: they do not alter the steps already done."""


class TrainState(Record):
    """Where training stands after a whole step."""

    step: int = 0
    """Steps (rollouts) done."""
    position: int = 0
    """Problems taken from the endless shuffled series."""
    updates: int = 0
    """Optimiser steps done."""
    samples: int = 0
    tokens: int = 0
    """Completion tokens sampled."""
    temperature: TemperatureState = TemperatureState()
    health: HealthState = HealthState()


@contextlib.contextmanager
def open_checkpoints(
    work: Path, fingerprint: dict[str, str], keep_last: int, *, resume: bool, mirror: FolderStore | None = None
) -> Iterator[Checkpoints]:
    """The work folder of one run, held against a second run at work in it, and removed at the end where nothing was done.

    Args:
        fingerprint: What must be equal for a run to go on, by what a person would call it.
        resume: Whether to go on with the run in `work`, or where `work` holds none, with that in `mirror`; without one, a run starts.
        mirror: Gets a copy of each checkpoint, for a machine whose disk may be gone.

    Raises:
        StorageError: `mirror` cannot be asked whether it holds anything.
        InputError: `work` holds an unfinished run and `resume` is off, a run of another configuration, data set or model, or no run at
            all but something else; or another process is at work in it.
    """
    with locked_folder(work):
        file = work / _RUN_FILE
        if not file.is_file() and any(path.name != LOCK_FILE for path in work.iterdir()):
            raise InputError(f"{work}: is not empty and holds no training run; give a new folder or empty this one")
        checkpoints = Checkpoints(work, keep_last, mirror)
        if not checkpoints.hold_work and mirror and mirror.names():
            if not resume:
                raise InputError(f"{mirror}: holds an unfinished run; add --resume to go on with it, or delete it to start anew")
            checkpoints.fetch()
        if checkpoints.hold_work:
            if not resume:
                raise InputError(f"{work}: holds an unfinished run; add --resume to go on with it, or delete the folder to start anew")
            _check_same_run(file, fingerprint)
        write_text(file, json.dumps(fingerprint, indent=2) + "\n")
        try:
            yield checkpoints
        finally:
            if not checkpoints.hold_work:
                _remove_own(work)


def discard_work(work: Path, fingerprint: dict[str, str], mirror: FolderStore | None = None) -> None:
    """Removes the work folder of a run that has ended, and its checkpoints in `mirror`; any other folder is left alone."""
    if (work / _RUN_FILE).is_file() and _read_run(work / _RUN_FILE) == fingerprint:
        with locked_folder(work):
            _remove_own(work)
    if mirror is None:
        return
    try:
        for name in mirror.names():
            mirror.delete_folder(name)
    except StorageError as error:
        logger.warning("%s: the checkpoints of the finished run are still there (%s)", mirror, error)


def _remove_own(work: Path) -> None:
    """Removes what a run made in its work folder, and the folder where nothing else is in it."""
    for name in ("checkpoints", "rollouts", TENSORBOARD_FOLDER):
        shutil.rmtree(work / name, ignore_errors=True)
    for name in (METRICS_FILE, SAMPLES_FILE, _RUN_FILE, LOCK_FILE):
        (work / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        work.rmdir()


def _check_same_run(file: Path, fingerprint: dict[str, str]) -> None:
    known = _read_run(file)
    for what, value in fingerprint.items():
        if known.get(what) != value:
            which = f" ({_difference(known.get(what, '{}'), value)})" if what == "configuration" else ""
            raise InputError(
                f"resume: the run in {file.parent} has another {what}{which}; give the same one, or delete the folder to start anew"
            )


def _difference(known: str, given: str) -> str:
    """The first settings that differ between two configurations, as `key: theirs, got ours`."""
    theirs, ours = json.loads(known), json.loads(given)
    differing = [key for key in sorted({*theirs, *ours}) if theirs.get(key) != ours.get(key)]
    more = f" and {len(differing) - 3} more" if len(differing) > 3 else ""
    return "; ".join(f"{key}: {theirs.get(key)}, got {ours.get(key)}" for key in differing[:3]) + more


def _read_run(file: Path) -> dict[str, str]:
    try:
        return dict(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{file}: cannot be read ({error}); delete {file.parent} to start anew") from None


class Checkpoints:
    """The files of one run in its work folder.

    Args:
        work: The folder; made when first written to.
        keep_last: Checkpoints to keep.
        mirror: Gets a copy of each. One that is away is said so, and waited for no longer than its client's patience.
    """

    def __init__(self, work: Path, keep_last: int, mirror: FolderStore | None = None) -> None:
        self.work = work
        self._keep_last = keep_last
        self._mirror = mirror

    @property
    def hold_work(self) -> bool:
        """Whether anything was done that a resumed run need not do again."""
        return bool(self._finished()) or any((self.work / "rollouts").glob("step-*.jsonl"))

    def save(self, state: TrainState, weights: dict[str, torch.Tensor], moments: Moments) -> None:
        """Publishes a checkpoint, then deletes older ones and the rollouts that it covers."""
        target = self._folder(state.step)
        if target.exists():
            return
        staging = target.with_name(f".{target.name}.partial")
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(parents=True)
        save_file(weights, staging / "model.safetensors")
        torch.save(moments, staging / "optimizer.pt")
        for name in _CARRIED:
            if (self.work / name).is_file():
                shutil.copyfile(self.work / name, staging / name)
        write_text(staging / "state.json", json.dumps(state.model_dump()))
        publish_folder(staging, target)
        for old in self._finished()[: -self._keep_last]:
            shutil.rmtree(old)
        for file in (self.work / "rollouts").glob("step-*.jsonl"):
            if int(file.stem.split("-")[1]) <= state.step:
                file.unlink()
        if self._mirror:
            self._copy_to(self._mirror, target)

    def _copy_to(self, mirror: FolderStore, checkpoint: Path) -> None:
        try:
            mirror.upload_folder(checkpoint, checkpoint.name)
            for old in mirror.names()[: -self._keep_last]:
                mirror.delete_folder(old)
        except StorageError as error:
            logger.warning("%s: %s is not there (%s); training goes on with the one on disk", mirror, checkpoint.name, error)

    def fetch(self) -> None:
        """Brings the newest checkpoint of the mirror that is whole here.

        Raises:
            StorageError: The mirror is away.
            InputError: Each of its checkpoints is damaged.
        """
        assert self._mirror
        for name in reversed(self._mirror.names()):
            target = self.work / "checkpoints" / name
            try:
                self._mirror.download_folder(name, target)
            except DamageError as error:
                logger.warning("resume: %s", error)
                continue
            for carried in _CARRIED:
                if (target / carried).is_file():
                    shutil.copyfile(target / carried, self.work / carried)
            logger.info("resume: %s came from %s", name, self._mirror)
            return
        raise InputError(f"{self._mirror}: every checkpoint is damaged; delete it to start anew")

    def has(self, step: int) -> bool:
        """Whether there is a checkpoint of this step."""
        return self._folder(step).exists()

    def newest(self) -> tuple[TrainState, dict[str, torch.Tensor], Moments] | None:
        """State, weights and optimiser of the newest checkpoint that can be read, or None where there is none.

        Raises:
            InputError: There are checkpoints, and none of them can be read.
        """
        loaded = self._load_newest()
        for name in (METRICS_FILE, SAMPLES_FILE):
            self._forget_after(name, loaded[0].step if loaded else 0)
        return loaded

    def _load_newest(self) -> tuple[TrainState, dict[str, torch.Tensor], Moments] | None:
        damaged: list[Path] = []
        complaint = ""
        for folder in reversed(self._finished()):
            try:
                loaded = _load(folder)
            except (torch.OutOfMemoryError, MemoryError):
                raise
            except Exception as error:  # what a damaged file raises differs from file to file
                complaint = f"{folder}: cannot be read ({' '.join(f'{type(error).__name__}: {error}'.split())[:200]})"
                logger.warning("resume: %s", complaint)
                damaged.append(folder)
            else:
                for other in damaged:  # their steps are saved again
                    other.rename(other.with_name(f"damaged-{other.name}"))
                return loaded
        if complaint:
            raise InputError(f"{complaint}, nor can an older checkpoint; delete {self.work} to start anew")
        return None

    @property
    def newest_step(self) -> int | None:
        """Step of the newest checkpoint, or None."""
        finished = self._finished()
        return int(finished[-1].name.removeprefix("step-")) if finished else None

    def metrics(self) -> Iterator[dict[str, Any]]:
        """The steps so far: `step` and the metrics of each."""
        file = self.work / METRICS_FILE
        return (row for _, row in read_rows(file)) if file.is_file() else iter(())

    def append(self, name: str, rows: Iterable[dict[str, Any]]) -> None:
        """Adds rows to a JSON Lines file of the run."""
        self.work.mkdir(parents=True, exist_ok=True)
        with (self.work / name).open("a", encoding="utf-8") as stream:
            stream.writelines(dump_row(row) for row in rows)

    def save_rollout(self, step: int, number: int, groups: Sequence[Group]) -> None:
        """Keeps the judged completions of a step's rollout `number`, from 0."""
        file = self._rollout_file(step, number)
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(file) as stream:
            for group in groups:
                pairs = [[sample.completion.model_dump(mode="json"), sample.judgement.model_dump(mode="json")] for sample in group.samples]
                stream.write(dump_row({"problem_id": group.task.problem.problem_id, "samples": pairs}))

    def load_rollout(self, step: int, number: int, tasks: Sequence[Task], policy_version: int) -> list[Group] | None:
        """The judged completions kept of a step's rollout, or None where there are none for these tasks and this policy."""
        file = self._rollout_file(step, number)
        if not file.is_file():
            return None
        rows = [row for _, row in read_rows(file)]
        if [row["problem_id"] for row in rows] != [task.problem.problem_id for task in tasks]:
            return None
        groups = [Group(task, tuple(_sample(pair, str(file)) for pair in row["samples"])) for task, row in zip(tasks, rows, strict=True)]
        same_policy = all(sample.completion.policy_version == policy_version for group in groups for sample in group.samples)
        return groups if same_policy else None

    def _forget_after(self, name: str, step: int) -> None:
        file = self.work / name
        if file.is_file():
            kept = [row for row in _whole_rows(file) if row["step"] <= step]
            write_text(file, "".join(dump_row(row) for row in kept))

    def _folder(self, step: int) -> Path:
        return self.work / "checkpoints" / f"step-{step:06d}"

    def _rollout_file(self, step: int, number: int) -> Path:
        return self.work / "rollouts" / f"step-{step:06d}-{number}.jsonl"

    def _finished(self) -> list[Path]:
        folders = (self.work / "checkpoints").glob("step-*")
        return sorted(folder for folder in folders if (folder / "state.json").is_file())


def _load(folder: Path) -> tuple[TrainState, dict[str, torch.Tensor], Moments]:
    state = TrainState.model_validate_json((folder / "state.json").read_text(encoding="utf-8"))
    moments = torch.load(folder / "optimizer.pt", map_location="cpu", weights_only=True)
    return state, load_file(folder / "model.safetensors"), moments


def fingerprint(config: TrainConfig, *, dataset_sha256: str, model: str) -> dict[str, str]:
    """What a resumed run must share with the run that it continues, by what a person would call it."""
    fixed = config.model_copy(update={name: TrainConfig.model_fields[name].default for name in _FREE_TO_CHANGE})
    return {"configuration": json.dumps(fixed.flat(), sort_keys=True), "data set": dataset_sha256, "model": model}


def _sample(pair: Sequence[dict[str, Any]], where: str) -> Sample:
    return Sample(parse_record(Completion, pair[0], where), parse_record(Judgement, pair[1], where))


def _whole_rows(file: Path) -> Iterable[dict[str, Any]]:
    """The rows of a file whose last line a kill may have cut."""
    for line in file.read_text(encoding="utf-8").split("\n"):
        try:
            yield json.loads(line)
        except ValueError:
            return
