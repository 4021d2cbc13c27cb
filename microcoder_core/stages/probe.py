"""The stage `probe`: measures response diversity on the model as it is and over a few pilot updates, and chooses the temperature."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import torch
from pydantic import Field

from microcoder_core.config import Config
from microcoder_core.diversity.measures import token_entropy
from microcoder_core.diversity.temperature import Candidate, choose_temperature, fit_trend, holds
from microcoder_core.grpo.config import Count, Positive, Share
from microcoder_core.grpo.rollout import Group, Task, check_graded, collect_rollout
from microcoder_core.grpo.trainer import Trainer
from microcoder_core.judge.judge import open_judge
from microcoder_core.progress import Progress
from microcoder_core.sampling.base import TrainedSampler, prompt_seeds
from microcoder_core.sampling.models import LoadedModel, load_model, set_torch_threads
from microcoder_core.stages.model_source import model_sha256, resolve_model
from microcoder_core.stages.results import GridPoint, Pilot, ProbeResult
from microcoder_core.stages.rollout_parts import (
    DiversityWatcher,
    JudgeRewarder,
    diversity_metrics,
    make_tasks,
    of_difficulties,
    open_sampler,
)
from microcoder_core.stages.train import TrainStageConfig
from microcoder_core.storage.atomic import atomic_folder, check_replaceable
from microcoder_core.storage.datasets import content_sha256, read_problems
from microcoder_core.storage.stage_output import StageRecord, write_stage_record
from microcoder_core.tracking import Tracker


class ProbeConfig(Config):
    """What the probe measures and how it decides."""

    temperatures: Annotated[tuple[Positive, ...], Field(min_length=1)] = (0.6, 0.8, 1.0, 1.2, 1.5, 1.8)
    """Candidates. Source: the paper's study spans 0.6 to 1.8."""
    problems: Count = 64
    """Problems that the untrained model is measured on: the first of the data set. Chosen."""
    pilot_updates: Annotated[int, Field(ge=0)] = 6
    """Steps of each pilot run; 0 trusts the untrained model's numbers alone. Chosen."""
    max_change: Positive = 0.1
    """Diversity holds while its fitted relative change over the pilot's later half stays within this. Chosen, untested on large models."""
    max_swing: Positive = 0.35
    """... and all it moves in the pilot, over its first value, within this. Source: in the paper T = 1.8 swings by 0.38, 1.2 by 0.05."""
    min_pass_share: Share = 0.5
    """A temperature whose pass@1 is below this share of the best one's is left out. Chosen."""
    train: TrainStageConfig = TrainStageConfig()
    """How the pilots train: give what the training itself will use."""


def probe(config: ProbeConfig, *, model: str, problems: Path, out: Path, tracker: Tracker) -> ProbeResult:
    """Chooses the temperature and says why.

    Pilots train on one batch of problems again and again, so that their diversity is compared on the same prompts; the model is put
    back after each.
    """
    check_replaceable(out, "probe")
    tracker.log_params(config.flat() | {"model": model})
    tracker.log_dataset(problems, "probe")
    inputs = {"problems": content_sha256(problems), "model": model, "model_sha256": model_sha256(model)}
    set_torch_threads(config.train.torch_threads)
    loaded = load_model(resolve_model(model), config.train.dtype, trainable=True)
    chosen = itertools.islice(of_difficulties(read_problems(problems), config.train.difficulties), config.problems)
    tasks = make_tasks(chosen, loaded, config.train.rollout.max_new_tokens)
    with open_judge(config.train.judge) as running_judge, open_sampler(config.train.sampler, loaded) as sampler:
        rewarder = JudgeRewarder(running_judge)
        sampler.update_weights(loaded.model.state_dict().items(), 0)
        grid = _measure_grid(config, tasks, sampler, rewarder, tracker)
        best = max(point.pass_at_1 for point in grid)
        worth_a_pilot = [point.temperature for point in grid if 0 < point.pass_at_1 >= config.min_pass_share * best]
        pilots = _run_pilots(config, loaded, tasks, sampler, rewarder, worth_a_pilot if config.pilot_updates else [])
    result = decide(config, grid, pilots)
    tracker.log_metrics({"probe/temperature": result.temperature})
    with atomic_folder(out, "probe") as folder:
        record = StageRecord(
            stage="probe",
            config=config.model_dump(mode="json"),
            inputs=inputs,
            result=result.model_dump(mode="json"),
        )
        write_stage_record(folder, record)
    return result


def decide(config: ProbeConfig, grid: Sequence[GridPoint], pilots: Sequence[Pilot]) -> ProbeResult:
    """The choice from the numbers. Without pilots, or without any right answer, it falls back on the configured temperature."""
    configured = config.train.rollout.temperature_stages[0][1]
    passes = {point.temperature: point.pass_at_1 for point in grid}
    if not pilots or max(passes.values()) == 0:
        unsolved = "the model solved no problem at any temperature, so no choice can be made"
        reason = f"{'no pilots were run' if max(passes.values()) > 0 else unsolved}; the configured temperature stands"
        return ProbeResult(temperature=configured, reason=reason, grid=tuple(grid), pilots=())
    candidates = [
        Candidate(temperature=pilot.temperature, pass_at_1=passes[pilot.temperature], trend=fit_trend(pilot.diversity)) for pilot in pilots
    ]
    temperature, reason = choose_temperature(
        candidates, max_change=config.max_change, max_swing=config.max_swing, min_pass_share=config.min_pass_share
    )
    return ProbeResult(temperature=temperature, reason=reason, grid=tuple(grid), pilots=tuple(pilots))


def _measure_grid(
    config: ProbeConfig, tasks: Sequence[Task], sampler: TrainedSampler, rewarder: JudgeRewarder, tracker: Tracker
) -> list[GridPoint]:
    rollout = config.train.rollout
    grid = []
    with Progress("probe: untrained model", len(config.temperatures)) as progress:
        for number, temperature in enumerate(config.temperatures):
            groups = collect_rollout(
                tasks,
                sampler,
                rewarder,
                group_size=rollout.group_size,
                temperature=temperature,
                max_new_tokens=rollout.max_new_tokens,
                seeds=prompt_seeds((config.train.seed, number), len(tasks)),
                judge_deadline_s=config.train.judge_deadline_s,
            )
            check_graded(groups)
            grid.append(_grid_point(temperature, groups))
            metrics = {f"probe/{name}": value for name, value in grid[-1].model_dump().items()}
            tracker.log_metrics(metrics, step=number)
            progress.advance(note=f"T {temperature:g} diversity {grid[-1].diversity:.2f} pass@1 {grid[-1].pass_at_1:.2f}")
    return grid


def _grid_point(temperature: float, groups: Sequence[Group]) -> GridPoint:
    samples = [sample for group in groups for sample in group.samples]
    measured = diversity_metrics([[sample.completion for sample in group.samples] for group in groups])
    graded = [sample.is_correct for sample in samples if sample.is_graded]
    return GridPoint(
        temperature=temperature,
        diversity=measured.get("microcoder/diversity", 0.0),
        pairwise_dissimilarity=measured.get("microcoder/pairwise_dissimilarity", 0.0),
        token_entropy=token_entropy([sample.completion for sample in samples]) or 0.0,
        distinct_programs_frac=measured.get("microcoder/distinct_programs_frac", 0.0),
        pass_at_1=statistics.fmean(graded) if graded else 0.0,
        mean_length=statistics.fmean(sample.length for sample in samples),
        truncated_frac=statistics.fmean(sample.is_truncated for sample in samples),
    )


def _run_pilots(
    config: ProbeConfig,
    loaded: LoadedModel,
    tasks: Sequence[Task],
    sampler: TrainedSampler,
    rewarder: JudgeRewarder,
    temperatures: Sequence[float],
) -> list[Pilot]:
    untrained = {name: weight.clone() for name, weight in loaded.model.state_dict().items()}
    pilots = []
    with Progress("probe: pilots", len(temperatures)) as progress:
        for temperature in temperatures:
            pilots.append(_run_pilot(config, loaded, tasks, sampler, rewarder, temperature))
            with torch.no_grad():
                loaded.model.load_state_dict(untrained)
            progress.advance(note=f"T {temperature:g} diversity {pilots[-1].late_change:+.1%}")
    return pilots


def _run_pilot(
    config: ProbeConfig,
    loaded: LoadedModel,
    tasks: Sequence[Task],
    sampler: TrainedSampler,
    rewarder: JudgeRewarder,
    temperature: float,
) -> Pilot:
    rollout = config.train.rollout.model_copy(update={"temperature_stages": ((0, temperature),), "temperature_auto": None})
    # One rollout more than updates: diversity is measured on a step's rollout, before its update.
    pilot = config.train.model_copy(update={"rollout": rollout, "max_steps": config.pilot_updates + 1})
    trainer = Trainer(
        pilot,
        model=loaded.model,
        pad_id=loaded.tokenizer.pad_token_id,
        tasks=tasks[: rollout.train_batch_size],
        sampler=sampler,
        rewarder=rewarder,
        watchers=(DiversityWatcher(),),
        compute_dtype=loaded.compute_dtype,
        label=f"probe: pilot at T {temperature:g}",
    )
    trainer.train()
    diversity = [metrics["microcoder/diversity"] for metrics in trainer.history if "microcoder/diversity" in metrics]
    trend = fit_trend(diversity)
    return Pilot(
        temperature=temperature,
        diversity=tuple(diversity),
        late_change=trend.late_change,
        swing=trend.swing,
        holds=holds(trend, max_change=config.max_change, max_swing=config.max_swing),
    )
