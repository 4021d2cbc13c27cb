"""The clipped policy loss, its token weights and the KL estimate.

Shape legend: T completion tokens, of one sequence or many.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from microcoder_core.grpo.config import LossConfig

_MAX_LOG_RATIO = 20.0
"""Log-ratios are clamped to this size before exp, as verl does, so that no ratio overflows."""


@dataclass(frozen=True, slots=True)
class LossTerms:
    """Of one micro-batch: the loss to differentiate, and sums over its tokens for the metrics."""

    loss: torch.Tensor
    """Scalar: this micro-batch's part of the update's loss; the parts add up."""
    clipped_low: int
    """Tokens whose ratio fell below 1 - clip_low with a negative advantage."""
    clipped_high: int
    """Tokens whose ratio rose above 1 + clip_high with a positive advantage."""
    kl_sum: float
    """Sum of the k3 estimate over tokens; 0 without a reference."""


def policy_loss(
    logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    weights: torch.Tensor,
    config: LossConfig,
    *,
    importance: torch.Tensor | None = None,
    ref_logprobs: torch.Tensor | None = None,
) -> LossTerms:
    """Minus the clipped objective, plus KL, summed under `weights`.

    Args:
        logprobs: `[T]` of the policy at the sampling temperature, with gradient.
        old_logprobs: `[T]` of the policy that sampled, at the same temperature.
        advantages: `[T]`.
        weights: `[T]`, see `token_weight`.
        importance: `[T]`, see `importance_weights`; multiplies the objective, not the KL.
        ref_logprobs: `[T]` of the reference model, where KL is on.

    Source: arXiv 2603.07777, the objective J; dual clip is arXiv 1912.09729, eq. 5; k3 is http://joschu.net/blog/kl-approx.html.
    """
    ratio = (logprobs - old_logprobs).clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO).exp()
    clipped = ratio.clamp(1 - config.clip_low, 1 + config.clip_high)
    per_token = -torch.minimum(ratio * advantages, clipped * advantages)
    if config.dual_clip is not None:
        per_token = torch.where(advantages < 0, torch.minimum(per_token, -config.dual_clip * advantages), per_token)
    if importance is not None:
        per_token = per_token * importance
    counted = weights > 0
    kl_sum = 0.0
    if ref_logprobs is not None:
        kl = k3(logprobs, ref_logprobs)
        per_token = per_token + config.kl_coef * kl
        kl_sum = float((kl.detach() * counted).sum())
    return LossTerms(
        loss=(per_token * weights).sum(),
        clipped_low=int(((ratio < 1 - config.clip_low) & (advantages < 0) & counted).sum()),
        clipped_high=int(((ratio > 1 + config.clip_high) & (advantages > 0) & counted).sum()),
        kl_sum=kl_sum,
    )


def importance_weights(old_logprobs: torch.Tensor, sampler_logprobs: torch.Tensor, cap: float) -> torch.Tensor:
    """How much likelier each token `[T]` is for the trainer than it was for the sampler, at most `cap`.

    A sampler of other numerics (vLLM) draws from a distribution that is not quite the policy's. Token by token: the product over a
    sequence would leave the cap behind after a few hundred tokens.

    Source: Yao et al. 2025, "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training"; verl's and SkyRL's cap is 2.
    """
    return (old_logprobs - sampler_logprobs).clamp(max=_MAX_LOG_RATIO).exp().clamp(max=cap)


def k3(logprobs: torch.Tensor, ref_logprobs: torch.Tensor) -> torch.Tensor:
    """The k3 estimate of KL(policy || reference) a token: exp(d) - d - 1 with d = ref - policy."""
    difference = (ref_logprobs - logprobs).clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO)
    return difference.exp() - difference - 1


def token_weight(length: int, *, aggregation: str, num_tokens: int, num_sequences: int, max_new_tokens: int) -> float:
    """The weight of each token of a sequence in the loss of one update.

    Args:
        length: Tokens of this sequence.
        num_tokens: Tokens of all graded sequences of the update, those with zero advantage and masked ones included.
        num_sequences: Graded sequences of the update.
        max_new_tokens: L_max, for `constant`.

    All denominators belong to the whole update, so the loss does not depend on how it is cut into micro-batches.
    """
    if aggregation == "token_mean":
        return 1.0 / num_tokens
    if aggregation == "sequence_mean":
        return 1.0 / (num_sequences * length)
    return 1.0 / (num_sequences * max_new_tokens)
