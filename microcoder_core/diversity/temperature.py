"""The temperature that follows from diversity: T(D).

Source: arXiv 2603.07777 and insights TEMP-4, TEMP-7, TEMP-8 give the principle (not so low that diversity keeps falling, not so high
that it swings); the rule below is ours, since none is published.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """How diversity moved over pilot updates."""

    late_change: float
    """Fitted change over the later half of the updates, over the fitted value at its start. A first adjustment is expected (different
    temperatures converge to like diversity, TEMP-7); what foretells failure is a fall that goes on (TEMP-4)."""
    swing: float
    """Largest minus smallest diversity, over the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """What is known of one temperature."""

    temperature: float
    pass_at_1: float
    trend: Trend


def fit_trend(diversity: Sequence[float]) -> Trend:
    """The trend of diversity: before the first update, then after each one; needs two points at least."""
    if len(diversity) < 2:
        raise ValueError(f"a trend needs at least two points, got {len(diversity)}")
    later = diversity[(len(diversity) - 1) // 2 :]
    slope, start = (float(value) for value in np.polyfit(np.arange(len(later)), later, deg=1))
    change = slope * (len(later) - 1) / max(abs(start), 1e-9)
    return Trend(late_change=change, swing=(max(diversity) - min(diversity)) / max(diversity[0], 1e-9))


def holds(trend: Trend, *, max_change: float, max_swing: float) -> bool:
    """Whether diversity neither goes on changing nor swings."""
    return abs(trend.late_change) <= max_change and trend.swing <= max_swing


def choose_temperature(candidates: Sequence[Candidate], *, max_change: float, max_swing: float, min_pass_share: float) -> tuple[float, str]:
    """The temperature to train at, and the reason in one sentence.

    Candidates whose pass@1 is below `min_pass_share` of the best one's are left out: their rewards carry too little signal. Of the
    rest, the highest temperature whose diversity holds is taken (more exploration at the same stability; TEMP-2, TEMP-6); where none
    holds, the one whose diversity changes least.
    """
    best = max(candidate.pass_at_1 for candidate in candidates)
    usable = [candidate for candidate in candidates if candidate.pass_at_1 >= min_pass_share * best]
    steady = [candidate for candidate in usable if holds(candidate.trend, max_change=max_change, max_swing=max_swing)]
    if steady:
        chosen = max(steady, key=lambda candidate: candidate.temperature)
        why = f"the highest temperature whose diversity holds over the pilot updates (late change {chosen.trend.late_change:+.1%})"
    else:
        chosen = min(usable, key=lambda candidate: abs(candidate.trend.late_change))
        why = f"no temperature's diversity holds; here it changes least at the end ({chosen.trend.late_change:+.1%})"
    left_out = [f"{candidate.temperature:g}" for candidate in candidates if candidate not in usable]
    if left_out:
        why += f"; left out for a pass@1 under {min_pass_share:.0%} of the best: {', '.join(left_out)}"
    return chosen.temperature, why
