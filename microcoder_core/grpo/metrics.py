"""The metrics of a training step: TRL's names where one exists, ours under `microcoder/`.

`METRICS` is the one table of them; docs/metrics.md is held against it by a test. A number that a step does not have is left out.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

import torch

from microcoder_core.grpo.loss import LossTerms
from microcoder_core.grpo.mask import MaskDecision
from microcoder_core.grpo.rollout import Group, Sample
from microcoder_core.records import Outcome, Verdict

METRICS = {
    "reward": "mean reward of the graded completions",
    "reward_std": "mean over groups of the standard deviation of rewards (n - 1)",
    "frac_reward_zero_std": "share of groups whose graded rewards are all equal: they teach nothing",
    "completions/mean_length": "mean completion length, tokens, before any mask",
    "completions/min_length": "shortest completion, tokens",
    "completions/max_length": "longest completion, tokens",
    "completions/clipped_ratio": "share of completions cut off at the length limit",
    "entropy": "mean negative log-probability of the sampled tokens at the sampling temperature, nats: unbiased for the policy's entropy",
    "clip_ratio/low_mean": "share of tokens with negative advantage whose ratio fell below 1 - clip_low, of the tokens in the loss",
    "clip_ratio/high_mean": "share of tokens with positive advantage whose ratio rose above 1 + clip_high, of the tokens in the loss",
    "kl": "mean k3 estimate of KL(policy || model at the start); only with loss.kl_coef > 0",
    "loss": "mean loss of the step's updates",
    "grad_norm": "mean gradient norm of the step's updates, before clipping",
    "learning_rate": "learning rate of the step's last update",
    "sampling/sampling_logp_difference/mean": "mean |trainer's log-probability - sampler's| over the tokens of the first update",
    "sampling/sampling_logp_difference/max": "largest such difference",
    "sampling/importance_sampling_ratio/mean": "mean of the trainer's probability over the sampler's, same tokens, before the cap",
    "num_tokens": "completion tokens sampled since the start",
    "step_time_s": "wall-clock seconds of the step",
    "tokens_per_s": "completion tokens of the step over its wall-clock seconds",
    "microcoder/pass_at_1": "share of graded completions that are accepted",
    "microcoder/diversity": "pooled distinct-4 over tokens, mean over problems",
    "microcoder/pairwise_dissimilarity": "1 - mean pairwise 4-gram multiset overlap, mean over problems",
    "microcoder/distinct_programs_frac": "distinct programs (normalised syntax tree) over programs that parse, mean over problems",
    "microcoder/temperature": "sampling temperature of the step",
    "microcoder/temperature_stage": "index of the temperature stage, from 0",
    "microcoder/diversity_smoothed": "exponential mean of the diversity; only with rollout.temperature_auto",
    "microcoder/mask_eligible_frac": "share of completions that meet every condition of the mask but the draw",
    "microcoder/masked_frac": "share of completions whose advantage was masked to 0",
    "microcoder/tail_repeat_frac": "share of completions whose last m tokens repeat the m before",
    "microcoder/rounds": "rollouts of the step: more than one only with dynamic sampling",
    "microcoder/groups_used": "groups that the step trains on: with dynamic sampling those with right and wrong completions",
    "microcoder/update_skipped_frac": "share of the step's updates without any advantage, which leave the weights alone",
    **{f"microcoder/verdict_{verdict}_frac": f"share of completions with verdict {verdict}" for verdict in Verdict},
    **{f"microcoder/outcome_{outcome}_frac": f"share of completions with outcome {outcome}" for outcome in Outcome},
}
"""Name -> definition and unit."""


@dataclass(slots=True)
class UpdateSums:
    """Sums over the tokens of one update."""

    loss: float = 0.0
    clipped_low: int = 0
    clipped_high: int = 0
    kl: float = 0.0
    fresh_tokens: int = 0
    """Tokens whose sampler's weights are those that they were run through the model with."""
    logprob_difference: float = 0.0
    """Over fresh tokens: |trainer's log-probability - sampler's|."""
    largest_logprob_difference: float = 0.0
    importance: float = 0.0
    """Over fresh tokens: the trainer's probability over the sampler's, without a cap."""

    def observe(self, terms: LossTerms) -> None:
        """Adds a part of the update's tokens."""
        self.loss += float(terms.loss.detach())
        self.clipped_low += terms.clipped_low
        self.clipped_high += terms.clipped_high
        self.kl += terms.kl_sum

    def observe_sampler(self, differences: torch.Tensor) -> None:
        """Adds fresh tokens, by log-probability `[T]` of the trainer less that of the sampler."""
        if len(differences):
            self.fresh_tokens += len(differences)
            self.logprob_difference += float(differences.abs().sum())
            self.largest_logprob_difference = max(self.largest_logprob_difference, float(differences.abs().max()))
            self.importance += float(differences.exp().sum())

    def __add__(self, other: UpdateSums) -> UpdateSums:
        values = {one.name: getattr(self, one.name) + getattr(other, one.name) for one in fields(self)}
        values["largest_logprob_difference"] = max(self.largest_logprob_difference, other.largest_logprob_difference)
        return UpdateSums(**values)


@dataclass(slots=True)
class UpdateTotals:
    """What the optimiser updates of one step come to."""

    updates: int = 0
    skipped: int = 0
    grad_norms: list[float] = field(default_factory=list)
    tokens_in_loss: int = 0
    learning_rate: float | None = None
    sums: UpdateSums = field(default_factory=UpdateSums)

    def add(self, sums: UpdateSums, grad_norm: float) -> None:
        """Adds an update that moved the weights."""
        self.sums += sums
        self.grad_norms.append(grad_norm)

    def metrics(self, *, with_kl: bool) -> dict[str, float]:
        """The step's metrics of its updates."""
        values: dict[str, float] = {"microcoder/update_skipped_frac": self.skipped / max(self.updates, 1)}
        sums = self.sums
        if self.grad_norms:
            values["loss"] = sums.loss / len(self.grad_norms)
            values["grad_norm"] = statistics.fmean(self.grad_norms)
        if self.learning_rate is not None:
            values["learning_rate"] = self.learning_rate
        if self.tokens_in_loss:
            values["clip_ratio/low_mean"] = sums.clipped_low / self.tokens_in_loss
            values["clip_ratio/high_mean"] = sums.clipped_high / self.tokens_in_loss
            if with_kl:
                values["kl"] = sums.kl / self.tokens_in_loss
        if sums.fresh_tokens:
            values["sampling/sampling_logp_difference/mean"] = sums.logprob_difference / sums.fresh_tokens
            values["sampling/sampling_logp_difference/max"] = sums.largest_logprob_difference
            values["sampling/importance_sampling_ratio/mean"] = sums.importance / sums.fresh_tokens
        return values


def rollout_metrics(
    groups: Sequence[Group], rewards: Sequence[Sequence[float | None]], decisions: Sequence[MaskDecision], repeats: Sequence[bool]
) -> dict[str, float]:
    """The step's metrics of its rollout, from the raw completions: no mask changes a length or a share."""
    samples = [sample for group in groups for sample in group.samples]
    lengths = [sample.length for sample in samples]
    values = {
        "completions/mean_length": statistics.fmean(lengths),
        "completions/min_length": float(min(lengths)),
        "completions/max_length": float(max(lengths)),
        "completions/clipped_ratio": statistics.fmean(sample.is_truncated for sample in samples),
        "microcoder/mask_eligible_frac": statistics.fmean(decision.is_eligible for decision in decisions),
        "microcoder/masked_frac": statistics.fmean(decision.is_masked for decision in decisions),
        "microcoder/tail_repeat_frac": statistics.fmean(repeats),
    }
    logprobs = [logprob for sample in samples for logprob in sample.completion.logprobs or ()]
    if logprobs:
        values["entropy"] = -statistics.fmean(logprobs)
    return values | _reward_metrics(rewards) | _verdict_shares(samples)


def _reward_metrics(rewards: Sequence[Sequence[float | None]]) -> dict[str, float]:
    graded = [[value for value in group if value is not None] for group in rewards]
    values = [value for group in graded for value in group]
    spreads = [statistics.stdev(group) for group in graded if len(group) > 1]
    if not values or not spreads:
        return {}
    return {
        "reward": statistics.fmean(values),
        "reward_std": statistics.fmean(spreads),
        "frac_reward_zero_std": statistics.fmean(spread == 0 for spread in spreads),
    }


def _verdict_shares(samples: Sequence[Sample]) -> dict[str, float]:
    verdicts = [sample.judgement.verdict for sample in samples]
    outcomes = [sample.judgement.outcome for sample in samples]
    values = {f"microcoder/verdict_{verdict}_frac": verdicts.count(verdict) / len(samples) for verdict in Verdict}
    values |= {f"microcoder/outcome_{outcome}_frac": outcomes.count(outcome) / len(samples) for outcome in Outcome}
    graded = len(samples) - outcomes.count(Outcome.UNGRADED)
    if graded:
        values["microcoder/pass_at_1"] = outcomes.count(Outcome.CORRECT) / graded
    return values
