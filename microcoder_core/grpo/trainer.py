"""The trainer: rollout, verdicts, updates, step by step.

Source: arXiv 2603.07777.
Differs from source: 1. token-mean weights instead of a plain sum over outputs (the sum states no length normaliser; DAPO's is used);
2. pi_old is what the sampler recorded, which the first update of a rollout reproduces to rounding.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Sequence
from typing import Any

import torch

from microcoder_core.errors import InputError, MicrocoderError, StageStopped
from microcoder_core.grpo.batching import problem_order
from microcoder_core.grpo.checkpoint import METRICS_FILE, SAMPLES_FILE, Checkpoints, TrainState
from microcoder_core.grpo.config import OptimizerConfig, TrainConfig
from microcoder_core.grpo.health import check_health, hang_ends_process, observe_health, still_alive
from microcoder_core.grpo.metrics import UpdateTotals, rollout_metrics
from microcoder_core.grpo.parallel import Processes, shard, trainable, whole_weights
from microcoder_core.grpo.policy import check_head, reference_of
from microcoder_core.grpo.rollout import Group, Rewarder, Task, Watcher, check_graded, collect_rollout
from microcoder_core.grpo.schedule import TemperatureState, observe_diversity, temperature_at
from microcoder_core.grpo.update import ScoredGroup, Updater, score_group, scored_sequences
from microcoder_core.grpo.weights import full_weights, load_training_state, training_state
from microcoder_core.interrupt import raise_stop, signals_ignored, signals_noted, sigterm_raises, stop_exit_code, stop_waits
from microcoder_core.progress import Progress
from microcoder_core.sampling.base import TrainedSampler, prompt_seeds
from microcoder_core.tracking import NullTracker, Tracker

logger = logging.getLogger(__name__)

_DIVERSITY = "microcoder/diversity"


class Trainer:
    """Trains a model in place.

    Args:
        model: A causal language model, with or without adapters, whose moving weights are float32. It is sharded here where the
            configuration says so.
        pad_id: Padding token.
        tasks: The problems with their prompts.
        checkpoints: Where the run keeps what a resume needs; None keeps nothing (pilot runs). Of several processes the main one alone has
            any.
        compute_dtype: Of the matrix products; the weights are float32, since smaller ones would lose small steps.
        label: What the progress line calls the run.

    Raises:
        InputError: No problem, weights that are not float32, or a model that the trainer does not know how to treat.
    """

    def __init__(
        self,
        config: TrainConfig,
        *,
        model: Any,
        pad_id: int,
        tasks: Sequence[Task],
        sampler: TrainedSampler,
        rewarder: Rewarder,
        watchers: Sequence[Watcher] = (),
        tracker: Tracker | None = None,
        checkpoints: Checkpoints | None = None,
        compute_dtype: torch.dtype = torch.float32,
        label: str = "train",
    ) -> None:
        if not tasks:
            raise InputError("problems: training needs at least one problem, got none")
        for weight in trainable(model):
            if weight.dtype != torch.float32:
                raise InputError(f"model: weights must be float32 while training, got {weight.dtype}; compute_dtype may be smaller")
        check_head(model)
        self.config = config
        self.label = label
        self.history: list[dict[str, float]] = []
        self.state = TrainState()
        self._tasks = tasks
        self._sampler = sampler
        self._rewarder = rewarder
        self._watchers = watchers
        self._tracker = tracker or NullTracker()
        self._checkpoints = checkpoints
        self._weights_ahead = False  # the weights have moved since `state` was true
        self._processes = Processes(on_cpu=model.device.type == "cpu")
        self._keeps_work = self._processes.from_main(checkpoints is not None)
        if config.gradient_checkpointing:
            model.gradient_checkpointing_enable()
            model.enable_input_require_grads()
        reference = reference_of(model) if config.loss.kl_coef > 0 else None
        if config.parallel == "fsdp" and self._processes.count > 1:
            shard(model)
        self._model = model
        self._optimizer = _make_optimizer(trainable(model), config.optimizer)
        corrects = config.loss.importance_correction
        self._updater = Updater(
            config,
            self._processes,
            model,
            self._optimizer,
            reference=reference,
            corrects=not sampler.shares_model if corrects == "auto" else corrects == "token",
            pad_id=pad_id,
            compute_dtype=compute_dtype,
        )

    @property
    def temperature_stages(self) -> tuple[tuple[int, float], ...]:
        """(first step, temperature) of each stage, those among them that falling diversity has brought about so far."""
        return (*self.config.rollout.temperature_stages, *self.state.temperature.stages)

    @property
    def num_steps(self) -> int:
        """Steps of the whole run."""
        if self.config.max_steps is not None:
            return self.config.max_steps
        return max(1, math.ceil(self.config.epochs * len(self._tasks) / self.config.rollout.train_batch_size))

    @property
    def _is_done(self) -> bool:
        """With dynamic sampling the problems of the last epoch may be used up in fewer steps."""
        return self.state.step >= self.num_steps or self._problems_left <= 0

    def train(self) -> None:
        """Runs all steps that are left, from the newest checkpoint on where there is one.

        Raises:
            StageStopped: SIGTERM or SIGINT, after the step at work was finished and saved; a second one does not wait for that.
            TrainingError, JudgeError: See its message; what was done so far is saved.
            InputError: Checkpoints that cannot be read.
        """
        if self._keeps_work:
            self._resume()
        if self._processes.count == 1:
            with sigterm_raises():
                self._run_steps(())
        else:
            with signals_noted("stopping after the step at work") as noted:
                self._run_steps(noted)

    def _run_steps(self, noted: Sequence[int]) -> None:
        """Runs the steps.

        Args:
            noted: Signals that this process has got. Several processes wait for each other: they stop after a step, all of them where one
                is told to.
        """
        try:
            with self._progress() as progress, hang_ends_process(self.config.health.hang_deadline_s):
                progress.resume_at(self.state.step)
                while not self._is_done:
                    progress.advance(note=_note(self._step()))
                    if number := max(self._processes.gather(noted[0] if noted else 0)):
                        raise_stop(number)
        except KeyboardInterrupt as stop:
            self._stop(stop_exit_code(stop))
        except MicrocoderError:
            self._save_if_whole()
            raise

    def _progress(self) -> Progress:
        return Progress(self.label, self.num_steps, is_shown=self._processes.is_main)

    def _resume(self) -> None:
        newest = self._checkpoints.newest() if self._checkpoints else None
        self.state, found = self._processes.from_main((newest[0], True) if newest else (TrainState(), False))
        if found:
            _, weights, moments = newest or (None, {}, {})
            load_training_state(self._model, self._optimizer, self._processes, weights, moments)
            logger.info("%s: going on after step %d of %d", self.label, self.state.step, self.num_steps)
        for row in self._checkpoints.metrics() if self._checkpoints else ():  # the tracked run of the earlier try ended with it
            metrics = {name: value for name, value in row.items() if name != "step"}
            self._tracker.log_metrics(metrics, row["step"])

    def _undisturbed(self, step: int) -> contextlib.AbstractContextManager[None]:
        """While the weights move, a signal waits; with several processes it waits for the step's end anyway."""
        return stop_waits(f"the update of step {step + 1}") if self._processes.count == 1 else contextlib.nullcontext()

    def _step(self) -> dict[str, float]:
        started = time.monotonic()
        step = self.state.step
        stage, temperature = temperature_at(self.temperature_stages, step)
        rounds = self._rounds(step, temperature)
        groups = [group for groups in rounds for group in groups]
        scored = [score_group(group, self.config, step) for group in groups]
        used = self._used(scored)
        metrics = self._measure(groups, scored) | {"microcoder/rounds": float(len(rounds)), "microcoder/groups_used": float(len(used))}
        metrics |= {"microcoder/temperature": temperature, "microcoder/temperature_stage": float(stage)}
        temperature_state = self._next_temperature(metrics)
        with self._undisturbed(step):
            totals = UpdateTotals()
            updates = self._update(used, totals)
            tokens = sum(sample.length for group in groups for sample in group.samples)
            self.state = TrainState(
                step=step + 1,
                position=self.state.position + len(groups),
                updates=updates,
                samples=self.state.samples + sum(len(group.samples) for group in groups),
                tokens=self.state.tokens + tokens,
                temperature=temperature_state,
                health=observe_health(self.state.health, self.config.health, metrics),
            )
            self._weights_ahead = False
            seconds = time.monotonic() - started
            metrics |= totals.metrics(with_kl=self.config.loss.kl_coef > 0)
            metrics |= {"num_tokens": float(self.state.tokens), "step_time_s": seconds, "tokens_per_s": tokens / seconds}
            self._record(metrics, scored)
        check_health(self.state.health, self.config.health)
        return metrics

    @property
    def _problems_left(self) -> float:
        """Problems that the run may still ask for, counted as often as it asks."""
        if self.config.max_steps is not None:
            return math.inf
        return math.ceil(self.config.epochs * len(self._tasks)) - self.state.position

    def _tasks_from(self, drawn: int) -> list[Task]:
        """The next tasks of a step that has drawn so many already."""
        size = min(self.config.rollout.train_batch_size, self._problems_left - drawn)
        order = problem_order(self.state.position + drawn, int(size), len(self._tasks), self.config.seed)
        return [self._tasks[index] for index in order]

    def _rounds(self, step: int, temperature: float) -> list[list[Group]]:
        """The rollouts of a step: one, and with dynamic sampling more of them while too few groups are mixed."""
        rounds: list[list[Group]] = []
        while tasks := self._tasks_from(sum(map(len, rounds))):
            rounds.append(self._rollout(step, len(rounds), tasks, temperature))
            mixed = sum(group.is_mixed for groups in rounds for group in groups)
            if mixed >= self.config.rollout.train_batch_size or len(rounds) > self.config.rollout.dynamic_sampling_rounds:
                break
        return rounds

    def _used(self, scored: Sequence[ScoredGroup]) -> list[ScoredGroup]:
        """The groups that the step trains on."""
        if not self.config.rollout.dynamic_sampling_rounds:
            return list(scored)
        mixed = [one for one in scored if one.group.is_mixed][: self.config.rollout.train_batch_size]
        if len(mixed) < self.config.rollout.train_batch_size:
            logger.warning(
                "%s: step %d trains on %d of %d groups: the others, of %d sampled, are all right or all wrong",
                self.label,
                self.state.step + 1,
                len(mixed),
                self.config.rollout.train_batch_size,
                len(scored),
            )
        return mixed

    def _rollout(self, step: int, number: int, tasks: Sequence[Task], temperature: float) -> list[Group]:
        kept = self._checkpoints.load_rollout(step + 1, number, tasks, self.state.updates) if self._checkpoints else None
        if self._processes.from_main(kept is not None):
            samples = self._processes.from_main([group.samples for group in kept or ()])
            return [Group(task, its) for task, its in zip(tasks, samples, strict=True)]
        seeds = prompt_seeds((self.config.seed, step, number) if number else (self.config.seed, step), len(tasks))
        groups = self._sample(tasks, seeds, temperature)
        check_graded(groups)
        if self._checkpoints:
            self._checkpoints.save_rollout(step + 1, number, groups)
        return groups

    def _sample(self, tasks: Sequence[Task], seeds: Sequence[Sequence[int]], temperature: float) -> list[Group]:
        """A group for each task; every process samples its own part of the tasks and gets all groups.

        The sampler gets the weights here, not after an update: where they do not arrive, the state is whole and can be saved.
        """
        own: list[Group] | MicrocoderError
        try:
            self._sampler.update_weights(full_weights(self._model), self.state.updates)
            with whole_weights(self._model) if self._sampler.shares_model else contextlib.nullcontext():
                own = collect_rollout(
                    self._processes.own(tasks),
                    self._sampler,
                    self._rewarder,
                    seeds=self._processes.own(seeds),
                    group_size=self.config.rollout.group_size,
                    temperature=temperature,
                    max_new_tokens=self.config.rollout.max_new_tokens,
                    judge_deadline_s=self.config.judge_deadline_s,
                )
        except MicrocoderError as error:
            own = error
        parts = self._processes.gather_results([group.samples for group in own] if isinstance(own, list) else own)
        count = self._processes.count
        return [Group(task, parts[place % count][place // count]) for place, task in enumerate(tasks)]

    def _next_temperature(self, metrics: dict[str, float]) -> TemperatureState:
        """The state of automatic stages after the step at work, whose metrics get the smoothed diversity."""
        state, auto = self.state.temperature, self.config.rollout.temperature_auto
        if auto is None:
            return state
        if _DIVERSITY not in metrics:
            raise InputError(f"rollout.temperature_auto needs a watcher that measures {_DIVERSITY}")
        after = observe_diversity(state, auto, metrics[_DIVERSITY], self.state.step)
        metrics["microcoder/diversity_smoothed"] = after.smoothed_diversity or 0.0
        if after.stages != state.stages:
            logger.info(
                "%s: diversity has been below %g for %d steps; temperature %g from step %d on",
                self.label,
                auto.diversity_floor,
                state.low_steps + 1,
                after.stages[-1][1],
                after.stages[-1][0] + 1,
            )
        return after

    def _measure(self, groups: Sequence[Group], scored: Sequence[ScoredGroup]) -> dict[str, float]:
        metrics = rollout_metrics(
            groups,
            [one.rewards for one in scored],
            [decision for one in scored for decision in one.decisions],
            [repeat for one in scored for repeat in one.repeats],
        )
        for watcher in self._watchers:
            metrics |= watcher.observe(groups)
        return metrics

    def _update(self, scored: Sequence[ScoredGroup], totals: UpdateTotals) -> int:
        """Runs the updates of one rollout; returns the optimiser steps done since the start."""
        updates = self.state.updates
        size = self.config.optimizer.mini_batch_size
        parts = [scored_sequences(scored[first : first + size], self.config) for first in range(0, len(scored), size)]
        is_fresh = True
        for sequences in self._updater.prepare(parts):
            self._weights_ahead = True
            if self._updater.update(sequences, updates, totals, is_fresh=is_fresh):
                updates += 1
                is_fresh = False
        return updates

    def _record(self, metrics: dict[str, float], scored: Sequence[ScoredGroup]) -> None:
        step = self.state.step
        self.history.append(metrics)
        still_alive()
        if self._checkpoints:
            self._keep(step, metrics, scored)
        if step % self.config.checkpoint.every_steps == 0 or self._is_done:
            self._save_if_whole()
        self._tracker.log_metrics(metrics, step)

    def _keep(self, step: int, metrics: dict[str, float], scored: Sequence[ScoredGroup]) -> None:
        assert self._checkpoints is not None
        self._checkpoints.append(METRICS_FILE, [{"step": step, **metrics}])
        if step % self.config.sample_steps == 0 or step == 1 or self._is_done:
            rows = [{"step": step, **row} for row in _sample_rows(scored[0])]
            self._checkpoints.append(SAMPLES_FILE, rows)
            self._tracker.log_table(rows, f"completions/step-{step:06d}.json")

    def _save_if_whole(self) -> None:
        if not self._keeps_work or self._weights_ahead or not self.state.step:
            return
        if self._processes.from_main(self._checkpoints is not None and self._checkpoints.has(self.state.step)):
            return
        weights, moments = training_state(self._model, self._optimizer)
        if self._checkpoints:
            self._checkpoints.save(self.state, weights, moments)

    def _stop(self, exit_code: int) -> None:
        with signals_ignored():
            self._save_if_whole()
        if self._checkpoints is None:
            raise StageStopped(f"{self.label} stopped after step {self.state.step} of {self.num_steps}", exit_code)
        saved = self._checkpoints.newest_step
        where = f"saved at step {saved} of {self.num_steps}" if saved else "no step was saved"
        raise StageStopped(f"training stopped, {where}; run the same command with --resume to go on", exit_code)


def _make_optimizer(weights: Sequence[torch.nn.Parameter], config: OptimizerConfig) -> torch.optim.Optimizer:
    settings: Any = {"lr": config.learning_rate, "betas": config.betas, "weight_decay": config.weight_decay}
    if config.kind == "adamw":
        return torch.optim.AdamW(weights, **settings)
    try:
        from bitsandbytes.optim import AdamW8bit
    except ImportError:
        raise InputError("optimizer.kind: adamw_8bit needs bitsandbytes; pip install bitsandbytes, or use adamw") from None
    return AdamW8bit(weights, **settings)  # type: ignore[no-any-return]


def _sample_rows(scored: ScoredGroup) -> list[dict[str, Any]]:
    rows = zip(scored.group.samples, scored.rewards, scored.advantages, scored.decisions, strict=True)
    return [
        {
            "problem_id": scored.group.task.problem.problem_id,
            "prompt": scored.group.task.problem.statement,
            "completion": sample.completion.text,
            "finish_reason": sample.completion.finish_reason,
            "verdict": sample.judgement.verdict.value,
            "detail": sample.judgement.detail,
            "reward": reward,
            "advantage": advantage,
            "masked": decision.is_masked,
        }
        for sample, reward, advantage, decision in rows
    ]


def _note(metrics: dict[str, float]) -> str:
    """The live line: what a person watches."""
    shown = (
        ("reward", "reward", ".2f"),
        ("pass@1", "microcoder/pass_at_1", ".2f"),
        ("diversity", "microcoder/diversity", ".2f"),
        ("length", "completions/mean_length", ".0f"),
        ("tok/s", "tokens_per_s", ".0f"),
    )
    return " ".join(f"{label} {metrics[name]:{form}}" for label, name, form in shown if name in metrics)
