"""The conditional truncation mask of MicroCoder-GRPO (arXiv 2603.07777, the advantage's indicator).

A masked completion's advantage becomes 0 after its group's mean and standard deviation were taken: it still counts in the baseline,
and its tokens still count in the loss denominator.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from microcoder_core.grpo.config import MaskConfig
from microcoder_core.grpo.rollout import Sample


@dataclass(frozen=True, slots=True)
class MaskDecision:
    """Why a completion is masked or not."""

    is_eligible: bool
    """At the limit, with an eligible outcome and no repeating tail: all conditions but the draw."""
    is_masked: bool


def decide_mask(sample: Sample, config: MaskConfig, *, max_new_tokens: int, draw: float) -> MaskDecision:
    """Whether one completion is masked.

    Args:
        max_new_tokens: L_max. A completion is at the limit when it is so long *and* was cut off: an end token that falls exactly on
            the limit is no truncation.
        draw: U(0, 1) of this completion, see `mask_draw`.
    """
    at_limit = sample.is_truncated and sample.length >= max_new_tokens
    if config.kind == "none" or not at_limit:
        return MaskDecision(False, False)
    if config.kind == "all":
        return MaskDecision(True, True)
    is_exempt = config.exempt_repeats and has_repeating_tail(sample.completion.token_ids, config.repeat_tokens)
    eligible = sample.judgement.outcome in config.eligible_outcomes and not is_exempt
    return MaskDecision(eligible, eligible and draw < config.rho)


def has_repeating_tail(token_ids: Sequence[int], m: int) -> bool:
    """Whether the last `m` tokens equal the `m` before them; False for fewer than 2m tokens."""
    return len(token_ids) >= 2 * m and tuple(token_ids[-m:]) == tuple(token_ids[-2 * m : -m])


def mask_draw(seed: int, step: int, problem_id: str, sample: int) -> float:
    """U(0, 1) of one completion: the same after a resume and for any number of processes."""
    return float(np.random.default_rng([seed, step, zlib.crc32(problem_id.encode()), sample]).random())
