"""Rewards and group-relative advantages."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from microcoder_core.grpo.config import AdvantageConfig
from microcoder_core.grpo.rollout import Sample

STD_EPS = 1e-6
"""Added to the standard deviation. Source: verl."""


def reward(sample: Sample, config: AdvantageConfig, max_new_tokens: int) -> float | None:
    """1 for a correct completion, 0 for any other, less the overlong punishment; None where it is ungraded."""
    if not sample.is_graded:
        return None
    return float(sample.is_correct) - overlong_punishment(sample.length, config, max_new_tokens)


def overlong_punishment(length: int, config: AdvantageConfig, max_new_tokens: int) -> float:
    """0 up to the buffer, then linear to `overlong_factor` at the limit.

    Source: DAPO (arXiv 2503.14476) eq. 13.
    """
    buffer = config.overlong_buffer_share * max_new_tokens
    if buffer == 0:
        return 0.0
    over = length - (max_new_tokens - buffer)
    return config.overlong_factor * min(max(over / buffer, 0.0), 1.0)


def group_advantages(rewards: Sequence[float | None], kind: str) -> list[float]:
    """The advantage of each completion of one group.

    Args:
        rewards: Those of the group; None (ungraded) enters neither mean nor standard deviation and gets 0.
        kind: `group_norm`: (r - mean) / (std + 1e-6), std with n - 1 as in TRL and verl; `group_mean`: r - mean.

    Returns:
        All 0 where all graded rewards are equal (exactly, whatever the rounding of the mean), or fewer than two are graded.
    """
    graded = [value for value in rewards if value is not None]
    if len(graded) < 2 or max(graded) == min(graded):
        return [0.0] * len(rewards)
    mean = statistics.fmean(graded)
    scale = statistics.stdev(graded) + STD_EPS if kind == "group_norm" else 1.0
    return [0.0 if value is None else (value - mean) / scale for value in rewards]
