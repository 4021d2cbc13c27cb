"""What training looked like, step by step."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from microcoder_core.records import Verdict
from microcoder_core.stages.report_page.canvas import (
    AMBER,
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PAPER,
    PURPLE,
    SKY,
    SOFT,
    VERDICT_COLOURS,
    draw_svg,
    legend_above,
)
from microcoder_core.stages.report_page.figures import Plot, found_or_missing
from microcoder_core.stages.report_page.inputs import History, Series
from microcoder_core.stages.report_page.text import compact, degrees, words

_SMOOTH_FROM = 15
"""Fewer steps than this are drawn as they are."""


@dataclass(frozen=True)
class Line:
    """One metric in a plot."""

    metric: str
    label: str
    colour: str
    dashes: str = "-"


_LINE_PLOTS: tuple[tuple[str, str, str, tuple[Line, ...]], ...] = (
    (
        "learning",
        "Reward and pass@1",
        "Mean over the completions of a step.",
        (Line("reward", "reward", BLUE), Line("microcoder/pass_at_1", "pass@1", ORANGE, "--")),
    ),
    (
        "diversity",
        "Diversity",
        "Distinct 4-grams of the responses to a prompt, and distinct programs among them. A collapse to one answer shows here first.",
        (Line("microcoder/diversity", "diversity", BLUE), Line("microcoder/distinct_programs_frac", "distinct programs", GREEN, "--")),
    ),
    (
        "truncation",
        "Truncated and masked responses",
        "Cut off at the length limit; of all responses, those that the mask could apply to and those that it left out of the loss.",
        (
            Line("completions/clipped_ratio", "truncated", ORANGE),
            Line("microcoder/mask_eligible_frac", "could be masked", PURPLE, ":"),
            Line("microcoder/masked_frac", "masked", BLUE, "--"),
            Line("microcoder/tail_repeat_frac", "repeating tail", GREY, "-."),
        ),
    ),
    ("entropy", "Entropy", "Mean over the sampled tokens, nats.", (Line("entropy", "entropy", PURPLE),)),
    (
        "clipping",
        "Clipped tokens",
        "Share of tokens whose importance ratio left the trust region, below and above.",
        (Line("clip_ratio/low_mean", "low", BLUE), Line("clip_ratio/high_mean", "high", ORANGE, "--")),
    ),
)
_OPTIMISER = (
    Line("loss", "loss", BLUE),
    Line("grad_norm", "gradient norm", ORANGE),
    Line("learning_rate", "learning rate", GREEN),
    Line("kl", "KL to the reference", PURPLE),
    Line("frac_reward_zero_std", "groups of equal rewards", AMBER),
    Line("tokens_per_s", "tokens a second", SKY),
)


def training_plots(history: History, length_limit: int | None) -> list[Plot]:
    """Every plot of training; one whose metrics are missing says so."""
    lines = {name: _line_plot(history, name, title, note, lines) for name, title, note, lines in _LINE_PLOTS}
    return [
        lines["learning"],
        lines["diversity"],
        _length_plot(history, length_limit),
        lines["truncation"],
        lines["entropy"],
        lines["clipping"],
        _temperature_plot(history),
        _verdict_plot(history),
    ]


def smoothed(series: Series) -> tuple[np.ndarray, int]:
    """The centred running mean, and over how many points it runs (1: the series as it is). Ends use the points there are."""
    values = np.asarray(series.values)
    if len(values) < _SMOOTH_FROM:
        return values, 1
    width = max(5, len(values) // 20) | 1
    half = width // 2
    sums = np.concatenate([[0.0], np.cumsum(values)])
    low = np.maximum(np.arange(len(values)) - half, 0)
    high = np.minimum(np.arange(len(values)) + half + 1, len(values))
    return (sums[high] - sums[low]) / (high - low), width


def _line_plot(history: History, name: str, title: str, note: str, lines: Sequence[Line]) -> Plot:
    found, missing = found_or_missing(lines, lambda line: bool(history.series(line.metric)))
    if not found:
        return Plot(name, title, note, None, missing)

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for line in found:
            _draw_line(axes, history.series(line.metric), line)
        axes.set_xlabel("step")
        _headroom(axes)
        legend_above(figure)

    label = f"{title} by step. " + " ".join(_spoken(line.label, history.series(line.metric)) for line in found)
    return Plot(name, title, note, draw_svg(name, label, draw), missing)


def _draw_line(axes: Any, series: Series, line: Line) -> None:
    mean, width = smoothed(series)
    marker = "o" if len(series.steps) == 1 else ""
    if width > 1:
        axes.plot(series.steps, series.values, color=line.colour, linewidth=0.7, alpha=0.35)
    axes.plot(series.steps, mean, line.dashes, color=line.colour, label=line.label, marker=marker, markersize=4)


def _headroom(axes: Any) -> None:
    """Starts the value axis at 0 where the data is near it, and never zooms into noise of less than a thousandth."""
    low, high = axes.dataLim.intervaly
    if 0 <= low < 0.5 * high or low == high == 0:
        axes.set_ylim(bottom=0)
    if high - low < 1e-3 * max(abs(high), 1e-9):
        axes.set_ylim(min(0.0, 1.2 * low), max(1.2 * high, 1e-3 if high == 0 else 0.0))


def _length_plot(history: History, limit: int | None) -> Plot:
    name, title = "length", "Response length"
    note = "Tokens a response: the mean, and the shortest and the longest of each step."
    mean = history.series("completions/mean_length")
    shortest, longest = history.series("completions/min_length"), history.series("completions/max_length")
    if not mean:
        return Plot(name, title, note, None, ["response length"])
    missing = [] if shortest and longest else ["shortest and longest"]
    missing += [] if limit else ["length limit"]

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        if shortest.steps == longest.steps:
            axes.fill_between(shortest.steps, shortest.values, longest.values, color=SKY, alpha=0.3, linewidth=0, label="min to max")
        _draw_line(axes, mean, Line("", "mean", BLUE))
        if limit:
            axes.axhline(limit, color=SOFT, linestyle=":", linewidth=1.3, label=f"limit {limit}")
        axes.set(xlabel="step", ylabel="tokens")
        axes.set_ylim(bottom=0)
        legend_above(figure)

    return Plot(name, title, note, draw_svg(name, f"{title} by step. {_spoken('mean', mean)}", draw), missing)


def _temperature_plot(history: History) -> Plot:
    name, title = "temperature-stages", "Temperature stages"
    note = "The sampling temperature of each step, and the diversity that came of it."
    temperature, diversity = history.series("microcoder/temperature"), history.series("microcoder/diversity")
    if not temperature:
        return Plot(name, title, note, None, ["temperature"])
    stages = _changes(temperature)

    def draw(figure: Any) -> None:
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[1, 1.5])
        upper.step(temperature.steps, temperature.values, where="post", color=ORANGE, marker="o" if len(temperature.steps) == 1 else "")
        upper.set_title("temperature")
        upper.set_ylim(0, 1.3 * max(temperature.values))
        lower.set_title("diversity")
        if diversity:
            _draw_line(lower, diversity, Line("", "diversity", BLUE))
            _headroom(lower)
        for number_, (step, value) in enumerate(stages):
            end = (*(late for late, _ in stages[number_ + 1 :]), temperature.steps[-1])[0]
            if number_ == len(stages) - 1 or end - step > 0.07 * (temperature.steps[-1] - temperature.steps[0]):  # room for it
                upper.annotate(degrees(value), (step, value), (3, 3), textcoords="offset points", color=INK)
            for axes in (upper, lower) if number_ else ():
                axes.axvline(step, color=SOFT, linestyle=":", linewidth=1)
        lower.set_xlabel("step")

    spoken = "; ".join(f"{degrees(value)} from step {step}" for step, value in stages)
    return Plot(name, title, note, draw_svg(name, f"{title}: {spoken}.", draw), [] if diversity else ["diversity"])


def _changes(series: Series) -> list[tuple[int, float]]:
    """The first step of each stretch of equal values, with that value."""
    points = list(zip(series.steps, series.values, strict=True))
    return points[:1] + [late for early, late in itertools.pairwise(points) if late[1] != early[1]]


def _verdict_plot(history: History) -> Plot:
    name, title, note = "verdict-shares", "Verdicts", "Share of the completions of a step, by verdict."
    shares = {verdict: dict(zip(*_pair(history, verdict), strict=True)) for verdict in Verdict}
    shares = {verdict: share for verdict, share in shares.items() if any(share.values())}
    if not shares:
        return Plot(name, title, note, None, ["verdict shares"])
    steps = sorted(set().union(*shares.values()))
    rows = {verdict: [share.get(step, 0.0) for step in steps] for verdict, share in shares.items()}  # absent: no such verdict

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        at = steps if len(steps) > 1 else [steps[0] - 0.5, steps[0] + 0.5]
        values = [row if len(steps) > 1 else row * 2 for row in rows.values()]
        colours = [VERDICT_COLOURS[verdict] for verdict in rows]
        edge = 0.4 if len(steps) <= 200 else 0.0  # the edges of more steps would cover the areas
        axes.stackplot(at, values, labels=[words(verdict) for verdict in rows], colors=colours, edgecolor=PAPER, linewidth=edge)
        axes.set(xlabel="step", xlim=(at[0], at[-1]), ylim=(0, 1))
        axes.grid(False)
        legend_above(figure, handlelength=0.9)

    label = f"{title} by step. " + " ".join(_spoken(words(verdict), Series(tuple(steps), tuple(row))) for verdict, row in rows.items())
    return Plot(name, title, note, draw_svg(name, label, draw, height_in=2.9), [])


def _pair(history: History, verdict: Verdict) -> tuple[tuple[int, ...], tuple[float, ...]]:
    series = history.series(f"microcoder/verdict_{verdict}_frac")
    return series.steps, series.values


def optimiser_plots(history: History) -> list[Plot]:
    """One small plot a metric of the updates."""
    return [
        _small_plot(history, line) for line in _OPTIMISER if line.metric != "kl" or history.series("kl")
    ]  # kl: only in a loss that has it


def _small_plot(history: History, line: Line) -> Plot:
    name, title, series = line.metric.replace("_", "-"), line.label[0].upper() + line.label[1:], history.series(line.metric)
    if not series:
        return Plot(name, title, "", None, [line.label])

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        _draw_line(axes, series, line)
        axes.locator_params(axis="y", nbins=5)
        axes.locator_params(axis="x", nbins=5)
        axes.ticklabel_format(axis="y", scilimits=(-3, 4), useMathText=False)
        axes.set_xlabel("step")
        _headroom(axes)

    label = f"{title} by step. {_spoken(line.label, series)}"
    return Plot(name, title, "", draw_svg(name, label, draw, height_in=1.75, width_in=3.1))


def _spoken(label: str, series: Series) -> str:
    first, last = compact(series.values[0]), compact(series.values[-1])
    return f"{label}: {first} at step {series.steps[0]}, {last} at step {series.steps[-1]}."
