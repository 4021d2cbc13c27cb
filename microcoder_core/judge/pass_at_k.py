"""pass@k: the chance that at least one of k samples is right."""

from __future__ import annotations

import math


def pass_at_k(num_samples: int, num_correct: int, k: int) -> float:
    """The unbiased estimate of pass@k from `num_samples` samples, of which `num_correct` are right.

    Source: arXiv 2107.03374 eq. 1, in whole numbers up to the one division, so that it is rounded once.

    Raises:
        ValueError: Fewer samples than k, or counts that cannot be.
    """
    if k < 1 or num_samples < k:
        raise ValueError(f"k must be from 1 to the number of samples, {num_samples}, got {k}; draw more samples or lower k")
    if not 0 <= num_correct <= num_samples:
        raise ValueError(f"num_correct must be from 0 to num_samples, {num_samples}, got {num_correct}")
    groups = math.comb(num_samples, k)
    return (groups - math.comb(num_samples - num_correct, k)) / groups
