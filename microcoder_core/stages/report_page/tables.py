"""The base and the trained model side by side, and the sentence that sums them up."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from microcoder_core.records import Verdict
from microcoder_core.stages.report_page.inputs import Run
from microcoder_core.stages.report_page.text import words


@dataclass(frozen=True)
class Row:
    """One measure before and after."""

    label: str
    base: float | None
    trained: float | None
    digits: int = 3
    higher_is_better: bool | None = None
    """None where neither direction is."""

    @property
    def difference(self) -> float | None:
        """Trained minus base; None where one is missing or not finite."""
        if self.base is None or self.trained is None or not math.isfinite(self.trained - self.base):
            return None
        return self.trained - self.base

    @property
    def tone(self) -> str:
        """`better`, `worse` or nothing."""
        if self.higher_is_better is None or self.difference is None or round(self.difference, self.digits) == 0:
            return ""
        return "better" if (self.difference > 0) == self.higher_is_better else "worse"


@dataclass(frozen=True)
class Group:
    """Rows under one heading."""

    title: str
    rows: tuple[Row, ...]


def before_after(run: Run) -> list[Group]:
    """Everything that the two evaluations measured."""
    return [
        Group("All problems", tuple(pass_rows_overall(run))),
        *([Group("By difficulty", rows)] if (rows := tuple(pass_rows_by_difficulty(run))) else []),
        Group("Responses", _response_rows(run)),
        Group("Verdicts, share of completions", _verdict_rows(run)),
    ]


def pass_rows_overall(run: Run) -> list[Row]:
    """pass@k over all problems."""
    return _pass_rows("", run.base.pass_at_k, run.trained.pass_at_k)


def pass_rows_by_difficulty(run: Run) -> list[Row]:
    """pass@k of each difficulty, easy first."""
    known = ("easy", "medium", "hard")
    names = {*run.base.by_difficulty, *run.trained.by_difficulty}
    rows = []
    for name in sorted(names, key=lambda name: (known.index(name) if name in known else len(known), name)):
        base, trained = run.base.by_difficulty.get(name), run.trained.by_difficulty.get(name)
        rows += _pass_rows(f"{name} ", base.pass_at_k if base else {}, trained.pass_at_k if trained else {})
    return rows


def headline(run: Run) -> str:
    """The run in one sentence, in plain ASCII."""
    row = Row("pass@1", run.base.pass_at_k.get("1"), run.trained.pass_at_k.get("1"))
    decision = "promotion not decided"
    if run.promotion:
        decision = "promoted" if run.promotion.promoted else "not promoted"
    if row.difference is None or row.base is None or row.trained is None:
        return f"pass@1 not recorded on {run.trained.problems} evaluation problems; {decision}"
    digits = 2 if round(row.base, 2) != round(row.trained, 2) else 3
    return f"pass@1 {row.base:.{digits}f} -> {row.trained:.{digits}f} on {run.trained.problems} evaluation problems; {decision}"


def cautions(run: Run) -> list[str]:
    """What makes the comparison unfair or weak, if anything does."""
    base, trained, notes = run.base, run.trained, []
    settings = ("temperature", "samples", "max_new_tokens", "problems", "date_from", "date_to")
    for name in settings:
        if getattr(base, name) != getattr(trained, name):
            notes.append(f"The two evaluations differ in {words(name)}: {getattr(base, name)} and {getattr(trained, name)}.")
    inputs = {role: record.inputs.get("problems") for role, record in run.records.items()}
    if inputs["evaluate base"] != inputs["evaluate trained"]:
        notes.append("The two evaluations used different problems.")
    if inputs["train"] and inputs["train"] == inputs["evaluate trained"]:
        notes.append("The evaluation used the training problems: it says nothing of problems that the model has not seen.")
    for who, result in (("base", base), ("trained", trained)):
        if result.ungraded:
            notes.append(f"{result.ungraded} completions of the {who} model could not be graded (the judge's fault); they count nowhere.")
    return notes


def _pass_rows(prefix: str, base: Mapping[str, float], trained: Mapping[str, float]) -> list[Row]:
    ks = sorted({*base, *trained}, key=lambda k: (not k.isdigit(), int(k) if k.isdigit() else 0, k))
    return [Row(f"{prefix}pass@{k}", base.get(k), trained.get(k), higher_is_better=True) for k in ks]


def _response_rows(run: Run) -> tuple[Row, ...]:
    base, trained = run.base, run.trained
    return (
        Row("diversity", base.diversity, trained.diversity),
        Row("distinct programs", base.distinct_programs_frac, trained.distinct_programs_frac),
        Row("mean length, tokens", base.mean_length, trained.mean_length, digits=1),
        Row("truncated", base.truncated_frac, trained.truncated_frac, higher_is_better=False),
    )


def _verdict_rows(run: Run) -> tuple[Row, ...]:
    base, trained = run.base.verdicts, run.trained.verdicts
    present = [verdict for verdict in Verdict if verdict in base or verdict in trained]
    return tuple(
        Row(words(verdict), base.get(verdict, 0.0), trained.get(verdict, 0.0), higher_is_better=verdict is Verdict.ACCEPTED or None)
        for verdict in present
    )
