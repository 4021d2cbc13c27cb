"""The run as a handful of numbers: `summary.json`."""

from __future__ import annotations

from microcoder_core.records import Record
from microcoder_core.stages.report_page.inputs import Run


class Summary(Record):
    """What a script reads of a run. Null: not recorded."""

    base_pass_at_1: float | None
    trained_pass_at_1: float | None
    base_pass_at_10: float | None
    trained_pass_at_10: float | None
    temperature: float | None
    """The probe's choice; without a probe, the temperature of the first training stage."""
    diversity: dict[str, float]
    """Of the two evaluations: `base` and `trained`."""
    problems_in: int
    """Records of the source."""
    problems_kept: int
    dropped: dict[str, int]
    """By reason, of import and curate."""
    promoted: bool | None
    promotion_reason: str | None
    seconds: dict[str, float]
    """By stage."""


def summarise(run: Run) -> Summary:
    """The numbers of `run`."""
    dropped = run.manifest.dropped_since_source
    base, trained, promotion = run.base.pass_at_k, run.trained.pass_at_k, run.promotion
    return Summary(
        base_pass_at_1=base.get("1"),
        trained_pass_at_1=trained.get("1"),
        base_pass_at_10=base.get("10"),
        trained_pass_at_10=trained.get("10"),
        temperature=_temperature(run),
        diversity={"base": run.base.diversity, "trained": run.trained.diversity},
        problems_in=run.manifest.problems + sum(dropped.values()),
        problems_kept=run.manifest.problems,
        dropped=dropped,
        promoted=promotion.promoted if promotion else None,
        promotion_reason=promotion.reason if promotion else None,
        seconds=dict(run.seconds),
    )


def _temperature(run: Run) -> float | None:
    if run.probe:
        return run.probe.temperature
    return run.train.stages[0][1] if run.train.stages else None
