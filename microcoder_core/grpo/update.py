"""One optimiser update from judged groups: advantages, mask, weights, micro-batches, step."""

from __future__ import annotations

import functools
import itertools
import math
from collections import ChainMap
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import torch

from microcoder_core.errors import TrainingError
from microcoder_core.grpo.advantage import group_advantages, reward
from microcoder_core.grpo.batching import CompletionTokens, MicroBatch, Row, ScoredSequence, collate, plan_micro_batches
from microcoder_core.grpo.config import TrainConfig
from microcoder_core.grpo.health import still_alive
from microcoder_core.grpo.loss import importance_weights, policy_loss, token_weight
from microcoder_core.grpo.mask import MaskDecision, decide_mask, has_repeating_tail, mask_draw
from microcoder_core.grpo.metrics import UpdateSums, UpdateTotals
from microcoder_core.grpo.parallel import Processes
from microcoder_core.grpo.policy import backward, can_share_rows, token_logprobs
from microcoder_core.grpo.rollout import Group
from microcoder_core.grpo.schedule import warmup_factor


@dataclass(frozen=True, slots=True)
class ScoredGroup:
    """A group with what the algorithm makes of it, sample by sample."""

    group: Group
    rewards: tuple[float | None, ...]
    decisions: tuple[MaskDecision, ...]
    repeats: tuple[bool, ...]
    advantages: tuple[float, ...]
    """After the mask."""


def score_group(group: Group, config: TrainConfig, step: int) -> ScoredGroup:
    """Rewards, mask and advantages of one group.

    Args:
        step: From 0; enters the mask's draws.
    """
    limit = config.rollout.max_new_tokens
    rewards = [reward(sample, config.advantage, limit) for sample in group.samples]
    decisions = [
        decide_mask(sample, config.mask, max_new_tokens=limit, draw=mask_draw(config.seed, step, group.task.problem.problem_id, number))
        for number, sample in enumerate(group.samples)
    ]
    advantages = group_advantages(rewards, config.advantage.kind)
    return ScoredGroup(
        group=group,
        rewards=tuple(rewards),
        decisions=tuple(decisions),
        repeats=tuple(has_repeating_tail(sample.completion.token_ids, config.mask.repeat_tokens) for sample in group.samples),
        advantages=tuple(0.0 if decision.is_masked else value for decision, value in zip(decisions, advantages, strict=True)),
    )


def scored_sequences(groups: Sequence[ScoredGroup], config: TrainConfig) -> list[ScoredSequence]:
    """The graded completions of one update with their advantages and token weights; the old policy is what the sampler recorded."""
    pairs = [
        (scored.group.task.prompt_ids, sample.completion, advantage)
        for scored in groups
        for sample, advantage in zip(scored.group.samples, scored.advantages, strict=True)
        if sample.is_graded
    ]
    num_tokens = sum(len(completion.token_ids) for _, completion, _ in pairs)
    return [
        ScoredSequence(
            prompt_ids=prompt_ids,
            completion_ids=completion.token_ids,
            sampler_logprobs=completion.logprobs or (),
            old_logprobs=completion.logprobs or (),
            advantage=advantage,
            temperature=completion.temperature,
            weight=token_weight(
                len(completion.token_ids),
                aggregation=config.loss.aggregation,
                num_tokens=num_tokens,
                num_sequences=len(pairs),
                max_new_tokens=config.rollout.max_new_tokens,
            ),
        )
        for prompt_ids, completion, advantage in pairs
    ]


class Updater:
    """Moves the weights.

    Args:
        model: Its weights are on `device`, and each process's own share of them where it is sharded.
        reference: Gives the model at the start, where KL is on.
        corrects: Whether the sampler's log-probabilities are corrected for, see `LossConfig.importance_correction`.
        compute_dtype: Of the matrix products.
    """

    def __init__(
        self,
        config: TrainConfig,
        processes: Processes,
        model: Any,
        optimizer: torch.optim.Optimizer,
        *,
        reference: Callable[[], AbstractContextManager[Any]] | None,
        corrects: bool,
        pad_id: int,
        compute_dtype: torch.dtype,
    ) -> None:
        self._config = config
        self._processes = processes
        self._model = model
        self._optimizer = optimizer
        self._reference = reference
        self._corrects = corrects
        self._pad_id = pad_id
        self._compute_dtype = compute_dtype
        self._shared_row_tokens = config.optimizer.shared_row_tokens if can_share_rows(model) else 0

    def prepare(self, mini_batches: Sequence[Sequence[ScoredSequence]]) -> list[list[ScoredSequence]]:
        """The mini-batches of a rollout with the old policy's log-probabilities, before the weights move.

        Those of the first are left to its own forward pass, where the weights are still the same.
        """
        if not self._corrects:
            return [list(sequences) for sequences in mini_batches]
        return [list(sequences) if number == 0 else self._with_old_logprobs(sequences) for number, sequences in enumerate(mini_batches)]

    def update(self, sequences: Sequence[ScoredSequence], update: int, totals: UpdateTotals, *, is_fresh: bool) -> bool:
        """One optimiser step on `sequences`; returns whether the weights moved.

        Args:
            update: Optimiser steps before this one.
            totals: Gets what the update comes to.
            is_fresh: Whether the weights are still those that sampled.

        Sequences without advantage are not run through the model (their gradient is 0) but stay in the denominator. Where none has
        any, the optimiser is not stepped at all: Adam's momentum would still move the weights.

        Raises:
            TrainingError: A loss or gradient that is not finite, or a sampler whose weights are not the model's; the weights are as before.
        """
        learning_rate = self._config.optimizer.learning_rate * warmup_factor(update, self._config.optimizer.warmup_steps)
        totals.updates += 1
        totals.learning_rate = learning_rate
        active = self._active(sequences)
        totals.tokens_in_loss += sum(len(sequence.completion_ids) for sequence in sequences)
        if not active:
            totals.skipped += 1
            return False
        sums = self._backward(active, is_fresh=is_fresh)
        norm = self._processes.clip_gradients(self._model, self._config.optimizer.max_grad_norm)
        try:
            self._check(sums, norm, update)
        except TrainingError:
            self._optimizer.zero_grad()
            raise
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        self._optimizer.step()
        self._optimizer.zero_grad()
        totals.add(sums, norm)
        return True

    def _active(self, sequences: Sequence[ScoredSequence]) -> list[ScoredSequence]:
        with_kl = self._config.loss.kl_coef > 0
        return [sequence for sequence in sequences if sequence.advantage != 0 or with_kl]

    def _with_old_logprobs(self, sequences: Sequence[ScoredSequence]) -> list[ScoredSequence]:
        """`sequences`, those that will be run through the model with the old policy's log-probabilities as it computes them."""
        found: dict[int, tuple[float, ...]] = {}
        active = self._active(sequences)
        numbers = {id(one): number for number, one in enumerate(active)}
        for rows in self._shares(active):
            logprobs = iter(token_logprobs(self._model, self._collate(rows), self._compute_dtype).tolist())
            for one in (one for row in rows for one in row.sequences):
                its = tuple(itertools.islice(logprobs, len(one.completion_ids)))
                if id(one) in numbers:  # not one without weight that makes up the number of micro-batches
                    found[numbers[id(one)]] = its
        known = ChainMap(*self._processes.gather(found))
        return [replace(one, old_logprobs=known[numbers[id(one)]]) if id(one) in numbers else one for one in sequences]

    def _shares(self, sequences: Sequence[ScoredSequence]) -> list[list[Row]]:
        """This process's micro-batches; every process has as many."""
        settings = self._config.optimizer
        return self._processes.share(plan_micro_batches(sequences, settings.micro_batch_tokens, self._shared_row_tokens))

    def _collate(self, rows: Sequence[Row]) -> MicroBatch:
        return collate(rows, self._pad_id, self._model.device)

    def _check(self, sums: UpdateSums, norm: float, update: int) -> None:
        if not (math.isfinite(sums.loss) and math.isfinite(norm)):
            raise TrainingError(f"update {update}: loss {sums.loss} and gradient norm {norm} must be finite; lower optimizer.learning_rate")
        difference, most = sums.logprob_difference / max(sums.fresh_tokens, 1), self._config.loss.max_logprob_difference
        if self._corrects and difference > most:
            raise TrainingError(
                f"update {update}: the sampler's log-probabilities differ from the trainer's by {difference:.3g} on average, more than "
                f"loss.max_logprob_difference ({most:g}): it samples from other weights, or computes otherwise; check the sampler"
            )

    def _backward(self, sequences: Sequence[ScoredSequence], *, is_fresh: bool) -> UpdateSums:
        """Adds up the gradient over `sequences` and all processes."""
        self._model.train()
        sums = UpdateSums()
        for rows in self._shares(sequences):
            still_alive()
            batch = self._collate(rows)
            if self._reference is not None:
                with self._reference() as reference:
                    ref_logprobs = token_logprobs(reference, batch, self._compute_dtype)
                batch = replace(batch, tokens=replace(batch.tokens, ref_logprobs=ref_logprobs))
            backward(self._model, batch, functools.partial(self._objective, sums=sums, is_fresh=is_fresh), self._compute_dtype)
        self._processes.add_gradients(self._model)
        return sum(self._processes.gather(sums), UpdateSums())

    def _objective(self, logprobs: torch.Tensor, tokens: CompletionTokens, *, sums: UpdateSums, is_fresh: bool) -> torch.Tensor:
        loss = self._config.loss
        own = logprobs.detach()
        old_logprobs = own if self._corrects and is_fresh else tokens.old_logprobs
        importance = importance_weights(old_logprobs, tokens.sampler_logprobs, loss.importance_cap) if self._corrects else None
        terms = policy_loss(
            logprobs, old_logprobs, tokens.advantages, tokens.weights, loss, importance=importance, ref_logprobs=tokens.ref_logprobs
        )
        sums.observe(terms)
        if is_fresh:
            sums.observe_sampler((own - tokens.sampler_logprobs)[tokens.weights > 0])
        return terms.loss
