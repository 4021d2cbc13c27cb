"""How sure a mean difference between two models is, when both were measured on the same problems."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

_NUMBERS_AT_ONCE = 2_000_000


def paired_bootstrap(differences: Sequence[float], *, confidence: float, resamples: int, seed: int) -> tuple[float, float]:
    """Percentile interval of the mean of `differences`, one a problem, over problems drawn with replacement.

    A problem's difference is drawn as one: easy and hard problems differ far more than two models on one problem do.
    """
    means = np.concatenate(list(_means(np.asarray(differences, dtype=np.float64), resamples, seed)))
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def _means(differences: npt.NDArray[np.float64], resamples: int, seed: int) -> Iterator[npt.NDArray[np.float64]]:
    rng = np.random.default_rng(seed)
    chunk = max(1, _NUMBERS_AT_ONCE // len(differences))
    for start in range(0, resamples, chunk):
        drawn = rng.integers(len(differences), size=(min(chunk, resamples - start), len(differences)))
        yield differences[drawn].mean(axis=1)
