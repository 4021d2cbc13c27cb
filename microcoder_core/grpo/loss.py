"""The clipped policy loss, its token weights and the KL estimate.

Shape legend: N sequences of a micro-batch, C completion tokens (right-padded).
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
    ref_logprobs: torch.Tensor | None = None,
) -> LossTerms:
    """Minus the clipped objective, plus KL, summed under `weights`.

    Args:
        logprobs: `[N, C]` of the policy at the sampling temperature, with gradient.
        old_logprobs: `[N, C]` recorded while sampling, at the same temperature.
        advantages: `[N]`.
        weights: `[N, C]` from `token_weights`; 0 on padding.
        ref_logprobs: `[N, C]` of the reference model, where KL is on.

    Source: arXiv 2603.07777, the objective J; dual clip is arXiv 1912.09729, eq. 5; k3 is http://joschu.net/blog/kl-approx.html.
    """
    ratio = (logprobs - old_logprobs).clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO).exp()
    advantage = advantages[:, None]
    clipped = ratio.clamp(1 - config.clip_low, 1 + config.clip_high)
    per_token = -torch.minimum(ratio * advantage, clipped * advantage)
    if config.dual_clip is not None:
        per_token = torch.where(advantage < 0, torch.minimum(per_token, -config.dual_clip * advantage), per_token)
    counted = weights > 0
    kl_sum = 0.0
    if ref_logprobs is not None:
        kl = k3(logprobs, ref_logprobs)
        per_token = per_token + config.kl_coef * kl
        kl_sum = float((kl.detach() * counted).sum())
    return LossTerms(
        loss=(per_token * weights).sum(),
        clipped_low=int(((ratio < 1 - config.clip_low) & (advantage < 0) & counted).sum()),
        clipped_high=int(((ratio > 1 + config.clip_high) & (advantage > 0) & counted).sum()),
        kl_sum=kl_sum,
    )


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
