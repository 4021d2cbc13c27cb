"""One optimiser update from judged groups: advantages, mask, weights, micro-batches, step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from accelerate import Accelerator

from microcoder_core.errors import TrainingError
from microcoder_core.grpo.advantage import group_advantages, reward
from microcoder_core.grpo.batching import ScoredSequence, micro_batches
from microcoder_core.grpo.config import TrainConfig
from microcoder_core.grpo.loss import policy_loss, token_weight
from microcoder_core.grpo.mask import MaskDecision, decide_mask, has_repeating_tail, mask_draw
from microcoder_core.grpo.metrics import UpdateTotals
from microcoder_core.grpo.policy import completion_logprobs
from microcoder_core.grpo.rollout import Group
from microcoder_core.grpo.schedule import warmup_factor
from microcoder_core.sampling.models import computing


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
    """The graded completions of one update with their advantages and token weights."""
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
        model: As prepared by `accelerator`.
        optimizer: As prepared by `accelerator`.
        reference: The model at the start, where KL is on.
        compute_dtype: Of the matrix products.
    """

    def __init__(
        self,
        config: TrainConfig,
        accelerator: Accelerator,
        model: Any,
        optimizer: Any,
        *,
        reference: Any | None,
        pad_id: int,
        compute_dtype: torch.dtype,
    ) -> None:
        self._config = config
        self._accelerator = accelerator
        self._model = model
        self._optimizer = optimizer
        self._reference = reference
        self._pad_id = pad_id
        self._compute_dtype = compute_dtype

    def update(self, sequences: Sequence[ScoredSequence], update: int, totals: UpdateTotals) -> bool:
        """One optimiser step on `sequences`; returns whether the weights moved.

        Sequences without advantage are not run through the model (their gradient is 0) but stay in the denominator. Where none has
        any, the optimiser is not stepped at all: Adam's momentum would still move the weights.

        Raises:
            TrainingError: A loss or gradient that is not finite; the weights are as before.
        """
        learning_rate = self._config.optimizer.learning_rate * warmup_factor(update, self._config.optimizer.warmup_steps)
        totals.updates += 1
        totals.learning_rate = learning_rate
        with_kl = self._config.loss.kl_coef > 0
        active = [sequence for sequence in sequences if sequence.advantage != 0 or with_kl]
        totals.tokens_in_loss += sum(len(sequence.completion_ids) for sequence in sequences)
        if not active:
            totals.skipped += 1
            return False
        loss = self._backward(active, totals)
        norm = float(self._accelerator.clip_grad_norm_(self._model.parameters(), self._config.optimizer.max_grad_norm))
        if not (math.isfinite(loss) and math.isfinite(norm)):
            self._optimizer.zero_grad()
            raise TrainingError(f"update {update}: loss {loss} and gradient norm {norm} must be finite; lower optimizer.learning_rate")
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        self._optimizer.step()
        self._optimizer.zero_grad()
        totals.losses.append(loss)
        totals.grad_norms.append(norm)
        return True

    def _backward(self, sequences: Sequence[ScoredSequence], totals: UpdateTotals) -> float:
        self._model.train()
        loss = 0.0
        for batch in micro_batches(sequences, self._config.optimizer.micro_batch_tokens, self._pad_id, self._accelerator.device):
            reference = None
            with computing(self._accelerator.unwrap_model(self._model), self._compute_dtype):
                if self._reference is not None:
                    with torch.no_grad():
                        reference = completion_logprobs(self._reference, batch)
                logprobs = completion_logprobs(self._model, batch)
            terms = policy_loss(logprobs, batch.old_logprobs, batch.advantages, batch.weights, self._config.loss, reference)
            self._accelerator.backward(terms.loss)
            loss += float(terms.loss.detach())
            totals.clipped_low += terms.clipped_low
            totals.clipped_high += terms.clipped_high
            totals.kl_sum += terms.kl_sum
        return loss
