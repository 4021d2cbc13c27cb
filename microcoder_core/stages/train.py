"""The stage `train`: a model, problems and a configuration in; a model folder that `from_pretrained` loads out."""

from __future__ import annotations

import logging
import shutil
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from microcoder_core.config import build_config
from microcoder_core.errors import InputError
from microcoder_core.grpo.checkpoint import METRICS_FILE, SAMPLES_FILE, Checkpoints, discard_work, fingerprint, open_checkpoints
from microcoder_core.grpo.config import TrainConfig
from microcoder_core.grpo.rollout import Rewarder
from microcoder_core.grpo.trainer import Trainer
from microcoder_core.judge.judge import JudgeConfig, open_judge
from microcoder_core.records import Difficulty, parse_record
from microcoder_core.sampling.base import TrainedSampler
from microcoder_core.sampling.models import LoadedModel, load_model, set_torch_threads
from microcoder_core.stages.model_card import model_card
from microcoder_core.stages.model_source import model_sha256, resolve_model
from microcoder_core.stages.results import ProbeResult, TrainResult
from microcoder_core.stages.rollout_parts import DiversityWatcher, JudgeRewarder, make_tasks, of_difficulties, open_sampler
from microcoder_core.storage.atomic import atomic_folder, check_replaceable, write_text
from microcoder_core.storage.datasets import content_sha256, read_problems
from microcoder_core.storage.stage_output import STAGE_FILE, StageRecord, read_stage_record, read_stage_result, write_stage_record
from microcoder_core.tracking import Tracker
from microcoder_core.tracking.model_record import mlmodel_text

logger = logging.getLogger(__name__)

_TIMINGS = ("step_time_s", "tokens_per_s")


class TrainStageConfig(TrainConfig):
    """One training run with its judge."""

    difficulties: tuple[Difficulty, ...] = ()
    """Train on problems of these difficulties only; none given: on all."""
    judge: JudgeConfig = JudgeConfig()
    """How programs are judged."""


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
    tracker.log_artifact(out / "training", "training")
    tracker.log_model(out, "trained")
    discard_work(work, identity)
    return result


def _identity(config: TrainStageConfig, inputs: Mapping[str, str]) -> dict[str, str]:
    """What runs must share for one to be the continuation of the other."""
    settings = config.model_copy(update={"judge": config.judge.without_place(), "sampler": config.sampler.without_place()})
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
    loaded = load_model(resolve_model(model), config.dtype, trainable=True)
    with open_checkpoints(work, identity, config.checkpoint.keep_last, resume=resume) as checkpoints:
        if result := _finished_result(out, config, identity):  # by another process, before the work folder was free
            return result
        if resume and not checkpoints.hold_work:
            logger.info("train: %s holds nothing to go on with; starting at step 0", work)
        with open_judge(config.judge) as running_judge, open_sampler(config.sampler, loaded) as sampler:
            trainer = run_trainer(config, loaded, problems, sampler, JudgeRewarder(running_judge), tracker, checkpoints)
        result = _result(trainer, checkpoints)
        with atomic_folder(out, "trained model") as folder:
            save_model(folder, loaded)
            _save_history(folder / "training", config, work)
            write_text(folder / "README.md", model_card(model=model, config=config, result=result, dataset_sha256=inputs["problems"]))
            record = StageRecord(stage="train", config=config.model_dump(mode="json"), inputs=inputs, result=result.model_dump(mode="json"))
            write_stage_record(folder, record)
    return result


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


def save_model(folder: Path, loaded: LoadedModel) -> None:
    """Writes a model folder that `from_pretrained` loads, in the dtype that the base model was stored in."""
    loaded.model.to(loaded.stored_dtype).save_pretrained(folder)
    loaded.tokenizer.save_pretrained(folder)
    loaded.prompt_template.save(folder)
    write_text(folder / "MLmodel", mlmodel_text())  # so that MLflow's registry shows the signature


def _save_history(folder: Path, config: TrainConfig, work: Path) -> None:
    folder.mkdir()
    write_text(folder / "config.yaml", config.to_yaml())
    for name in (METRICS_FILE, SAMPLES_FILE):
        shutil.copyfile(work / name, folder / name)
