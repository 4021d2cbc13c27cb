"""The stage `train`: a model, problems and a configuration in; a model folder that `from_pretrained` loads out."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch

from microcoder_core.config import build_config
from microcoder_core.cpus import is_main_process
from microcoder_core.errors import InputError
from microcoder_core.grpo.checkpoint import (
    METRICS_FILE,
    SAMPLES_FILE,
    TENSORBOARD_FOLDER,
    Checkpoints,
    discard_work,
    fingerprint,
    open_checkpoints,
)
from microcoder_core.grpo.config import TrainConfig
from microcoder_core.grpo.lora import add_adapters
from microcoder_core.grpo.memory import GIB, available_memory, check_memory, estimate_memory
from microcoder_core.grpo.parallel import Processes
from microcoder_core.grpo.rollout import Rewarder
from microcoder_core.grpo.trainer import Trainer
from microcoder_core.grpo.weights import plain_model
from microcoder_core.judge.judge import JudgeConfig, open_judge
from microcoder_core.records import Difficulty, parse_record
from microcoder_core.sampling.base import TrainedSampler
from microcoder_core.sampling.models import (
    LoadedModel,
    disable_dropout,
    load_model,
    load_model_config,
    own_device,
    set_torch_threads,
    torch_dtype,
)
from microcoder_core.stages.model_card import model_card
from microcoder_core.stages.model_source import model_sha256, resolve_model
from microcoder_core.stages.results import ProbeResult, TrainResult
from microcoder_core.stages.rollout_parts import DiversityWatcher, JudgeRewarder, make_tasks, of_difficulties, open_sampler
from microcoder_core.storage.atomic import atomic_folder, check_replaceable, write_text
from microcoder_core.storage.datasets import content_sha256, read_problems
from microcoder_core.storage.stage_output import STAGE_FILE, StageRecord, read_stage_record, read_stage_result, write_stage_record
from microcoder_core.tracking import Tracker
from microcoder_core.tracking.model_record import mlmodel_text
from microcoder_core.tracking.stage_run import pipeline_run_label
from microcoder_core.tracking.tensorboard import WithTensorBoard

if TYPE_CHECKING:
    from microcoder_core.storage.s3 import FolderStore

logger = logging.getLogger(__name__)

_TIMINGS = ("step_time_s", "tokens_per_s")


class TrainStageConfig(TrainConfig):
    """One training run with its judge."""

    difficulties: tuple[Difficulty, ...] = ()
    """Train on problems of these difficulties only; none given: on all."""
    judge: JudgeConfig = JudgeConfig()
    """How programs are judged."""
    tensorboard: bool = True
    """Write the metrics for TensorBoard too: into the work folder, in the end into `training/tensorboard`."""


def train(
    config: TrainStageConfig,
    *,
    model: str,
    problems: Path,
    out: Path,
    tracker: Tracker,
    probe: Path | None = None,
    resume: bool = False,
    work: Path | None = None,
) -> TrainResult:
    """Trains a model and publishes it.

    Args:
        model: A folder, a hub id, or `nano`.
        out: The model folder; appears when training has ended. Until then all is in `work`.
        probe: Output of the stage `probe`; its temperature takes the place of the first stage's, unless the configuration says not to.
        resume: Go on from the newest checkpoint in `work`; start where there is none. A run that has ended already is not repeated.
        work: Checkpoints and rollouts of the run; null: `OUT.work` beside `out`. Removed at the end.

    Raises:
        InputError: Bad input, or `work` holds an unfinished run and `resume` is off, or one of other settings.
        TrainingError, StageStopped: See `Trainer.train`.
    """
    check_replaceable(out, "trained model")
    if not resume and (out / STAGE_FILE).exists():
        raise InputError(f"{out}: holds a trained model; give another folder, or delete this one to train anew")
    config = with_probed_temperature(config, probe)
    dataset = content_sha256(problems)
    inputs = {"problems": dataset, "model": model, "model_sha256": model_sha256(model)}
    work = work or out.with_name(out.name + ".work")
    tracker.log_params(config.flat() | {"model": model})
    tracker.log_dataset(problems, "training")
    identity = _identity(config, inputs)
    result = _finished_result(out, config, identity) if resume else None
    if result is None:
        result = _train(config, model, problems, inputs, identity, out, work, tracker, resume=resume)
    if not is_main_process():
        return result
    tracker.log_artifact(out / "training", "training")
    tracker.log_model(out, "trained")
    discard_work(work, identity, checkpoint_store(config, identity))
    return result


def _identity(config: TrainStageConfig, inputs: Mapping[str, str]) -> dict[str, str]:
    """What runs must share for one to be the continuation of the other."""
    unchanged = {"judge": config.judge.without_place(), "sampler": config.sampler.without_place(), "tensorboard": True}
    settings = config.model_copy(update=unchanged)
    return fingerprint(settings, dataset_sha256=inputs.get("problems", ""), model=inputs.get("model_sha256", ""))


def _finished_result(out: Path, config: TrainStageConfig, identity: dict[str, str]) -> TrainResult | None:
    """The result in `out`, where training has ended already and only what comes after was cut off; None where it is not there."""
    if not (out / STAGE_FILE).is_file():
        return None
    record = read_stage_record(out, "train")
    its = build_config(TrainStageConfig, record.config, str(out / STAGE_FILE))
    if (_identity(its, record.inputs), its.max_steps, its.epochs) != (identity, config.max_steps, config.epochs):
        raise InputError(f"resume: {out} holds a finished run of other settings; give another folder, or delete this one")
    logger.info("train: %s is finished; there is nothing left to do", out)
    return parse_record(TrainResult, record.result, f"{out / STAGE_FILE}: result")


def _train(
    config: TrainStageConfig,
    model: str,
    problems: Path,
    inputs: dict[str, str],
    identity: dict[str, str],
    out: Path,
    work: Path,
    tracker: Tracker,
    *,
    resume: bool,
) -> TrainResult:
    set_torch_threads(config.torch_threads)
    say_memory(resolve_model(model), config)
    loaded = load_for_training(resolve_model(model), config)
    processes = Processes(on_cpu=loaded.model.device.type == "cpu")
    with contextlib.ExitStack() as stack:
        checkpoints = None
        if processes.is_main:
            mirror = checkpoint_store(config, identity)
            opened = open_checkpoints(work, identity, config.checkpoint.keep_last, resume=resume, mirror=mirror)
            checkpoints = stack.enter_context(opened)
        finished = processes.from_main(_finished_result(out, config, identity))  # by another run, before the work folder was free
        if finished:
            return finished
        if resume and checkpoints and not checkpoints.hold_work:
            logger.info("train: %s holds nothing to go on with; starting at step 0", work)
        with (
            open_judge(config.judge) as running_judge,
            open_sampler(config.sampler, loaded) as sampler,
            _shown(tracker, work, config, checkpoints) as tracker,
        ):
            trainer = run_trainer(config, loaded, problems, sampler, JudgeRewarder(running_judge), tracker, checkpoints)
        plain = plain_model(loaded.model, loaded.stored_dtype)
        result = None
        if checkpoints:
            result = _result(trainer, checkpoints)
            record = StageRecord(stage="train", config=config.model_dump(mode="json"), inputs=inputs, result=result.model_dump(mode="json"))
            with atomic_folder(out, "trained model") as folder:
                save_model(folder, plain, loaded)
                _save_history(folder / "training", config, work)
                write_text(folder / "README.md", model_card(record))
                write_stage_record(folder, record)
        return cast(TrainResult, processes.from_main(result))


def checkpoint_store(config: TrainConfig, identity: Mapping[str, str]) -> FolderStore | None:
    """Where this run's checkpoints are copied to: a folder of what identifies the training, in one of the pipeline run's name."""
    if config.checkpoint.store is None:
        return None
    from microcoder_core.storage.s3 import FolderStore

    training = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
    return FolderStore("/".join(part for part in (config.checkpoint.store, pipeline_run_label(), training) if part))


@contextlib.contextmanager
def _shown(tracker: Tracker, work: Path, config: TrainStageConfig, checkpoints: Checkpoints | None) -> Iterator[Tracker]:
    """The tracker, with TensorBoard's files beside it where they are wanted."""
    if not (config.tensorboard and checkpoints):
        yield tracker
        return
    try:
        both = WithTensorBoard(tracker, work / TENSORBOARD_FOLDER)
    except ImportError:
        logger.warning("train: tensorboard is not installed, so nothing is written for it (tensorboard=false says nothing)")
        yield tracker
        return
    with contextlib.closing(both):
        yield cast(Tracker, both)


def say_memory(name: str, config: TrainConfig) -> None:
    """Logs how much memory the training needs by its estimate, before the model is loaded.

    Raises:
        InputError: More than there is, and `memory_check` is on.
    """
    device = own_device()
    estimate = estimate_memory(
        load_model_config(name),
        config,
        processes=int(os.environ.get("WORLD_SIZE", "1")),
        dtype=torch_dtype(config.dtype, device.type),
        gpu_bytes=float(torch.cuda.mem_get_info()[1]) if device.type == "cuda" else None,
    )
    available = available_memory()
    logger.info("train: memory: %s of %.1f GiB", estimate, available / GIB)
    if config.memory_check:
        check_memory(estimate, available)


def load_for_training(name: str, config: TrainConfig) -> LoadedModel:
    """A model whose moving weights are float32: all of them, or those of its adapters."""
    if config.lora is None:
        return load_model(name, config.dtype, trainable=True)
    loaded = load_model(name, config.dtype, quantize=config.lora.quantize)
    disable_dropout(loaded.model)
    return replace(loaded, model=add_adapters(loaded.model, config.lora))


def run_trainer(
    config: TrainStageConfig,
    loaded: LoadedModel,
    problems: Path,
    sampler: TrainedSampler,
    rewarder: Rewarder,
    tracker: Tracker,
    checkpoints: Checkpoints | None,
) -> Trainer:
    """Trains `loaded` in place and returns the trainer with its history."""
    trainer = Trainer(
        config,
        model=loaded.model,
        pad_id=loaded.tokenizer.pad_token_id,
        tasks=make_tasks(of_difficulties(read_problems(problems), config.difficulties), loaded, config.rollout.max_new_tokens),
        sampler=sampler,
        rewarder=rewarder,
        watchers=(DiversityWatcher(),),
        tracker=tracker,
        checkpoints=checkpoints,
        compute_dtype=loaded.compute_dtype,
    )
    trainer.train()
    return trainer


def with_probed_temperature(config: TrainStageConfig, probe: Path | None) -> TrainStageConfig:
    """The configuration with the probed temperature in its first stage, where it asks for that."""
    if probe is None or not config.rollout.temperature_from_probe:
        return config
    temperature = read_stage_result(probe, "probe", ProbeResult).temperature
    stages = ((0, temperature), *config.rollout.temperature_stages[1:])
    return config.model_copy(update={"rollout": config.rollout.model_copy(update={"temperature_stages": stages})})


def _result(trainer: Trainer, checkpoints: Checkpoints) -> TrainResult:
    history = list(checkpoints.metrics())
    tenth = max(1, len(history) // 10)
    state = trainer.state
    return TrainResult(
        steps=state.step,
        samples=state.samples,
        tokens=state.tokens,
        stages=trainer.temperature_stages,
        first=_means(history[:tenth]),
        last=_means(history[-tenth:]),
    )


def _means(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    names = sorted({name for row in rows for name in row} - {"step", *_TIMINGS})
    return {name: statistics.fmean(row[name] for row in rows if name in row) for name in names}


def save_model(folder: Path, model: Any, loaded: LoadedModel) -> None:
    """Writes a model folder that `from_pretrained` loads: `model` with all else from `loaded`."""
    model.save_pretrained(folder)
    loaded.tokenizer.save_pretrained(folder)
    loaded.prompt_template.save(folder)
    write_text(folder / "MLmodel", mlmodel_text())  # so that MLflow's registry shows the signature


def _save_history(folder: Path, config: TrainConfig, work: Path) -> None:
    folder.mkdir()
    write_text(folder / "config.yaml", config.to_yaml())
    for name in (METRICS_FILE, SAMPLES_FILE):
        shutil.copyfile(work / name, folder / name)
    if (work / TENSORBOARD_FOLDER).is_dir():
        shutil.copytree(work / TENSORBOARD_FOLDER, folder / TENSORBOARD_FOLDER)
