"""What came out: pass@k before and after, verdicts, the promotion decision, problems kept, seconds a stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from microcoder_core.records import Verdict
from microcoder_core.stages.report_page.canvas import BLUE, GREY, INK, ORANGE, PAPER, SOFT, VERDICT_COLOURS, draw_svg, legend_above
from microcoder_core.stages.report_page.figures import Plot
from microcoder_core.stages.report_page.inputs import Run
from microcoder_core.stages.report_page.tables import pass_rows_by_difficulty, pass_rows_overall
from microcoder_core.stages.report_page.text import duration, number, signed, visible, words
from microcoder_core.stages.results import PromotionResult

_MOST_BARS = 12


def pass_plot(run: Run) -> Plot:
    """pass@k of the base and the trained model, overall and by difficulty."""
    name, title, note = "pass-at-k", "pass@k before and after", "Over all problems, then pass@1 by difficulty."
    by_difficulty = [row for row in pass_rows_by_difficulty(run) if row.label.endswith("pass@1")]
    rows = [row for row in (*pass_rows_overall(run), *by_difficulty) if row.base is not None and row.trained is not None]
    if not rows:
        return Plot(name, title, note, None, ["pass@k"])

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for height, row in enumerate(rows):
            axes.plot([row.base, row.trained], [height, height], color=GREY, linewidth=2.2, alpha=0.5, zorder=1)
        heights = range(len(rows))
        axes.scatter([row.base for row in rows], heights, s=34, color=PAPER, edgecolors=ORANGE, linewidths=1.6, label="base", zorder=2)
        axes.scatter([row.trained for row in rows], heights, s=40, color=BLUE, label="trained", zorder=3)
        axes.set_yticks(heights, [row.label for row in rows])
        axes.set(xlim=(-0.03, 1.03), ylim=(len(rows) - 0.5, -0.5))
        axes.grid(axis="y", visible=False)
        axes.spines["left"].set_visible(False)
        legend_above(figure)

    label = f"{title}. " + " ".join(f"{row.label}: {number(row.base)} to {number(row.trained)}." for row in rows)
    return Plot(name, title, note, draw_svg(name, label, draw, height_in=0.7 + 0.29 * len(rows)))


def verdict_bars(run: Run) -> Plot:
    """Verdict shares of the two evaluations."""
    name, title, note = "verdict-bars", "Verdicts before and after", "Share of the completions of each evaluation."
    models = {"base": run.base.verdicts, "trained": run.trained.verdicts}
    shown = [verdict for verdict in Verdict if any(shares.get(verdict, 0.0) > 0 for shares in models.values())]
    if not shown:
        return Plot(name, title, note, None, ["verdict shares"])

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        left = [0.0, 0.0]
        for verdict in shown:
            widths = [shares.get(verdict, 0.0) for shares in models.values()]
            style = {"color": VERDICT_COLOURS[verdict], "edgecolor": PAPER, "linewidth": 0.6}
            axes.barh([0, 1], widths, left=left, height=0.62, label=words(verdict), **style)
            left = [start + width for start, width in zip(left, widths, strict=True)]
        axes.set_yticks([0, 1], list(models))
        axes.set(xlim=(0, 1), ylim=(1.5, -0.5))
        axes.grid(axis="y", visible=False)
        axes.spines[["left", "bottom"]].set_visible(False)
        legend_above(figure, handlelength=0.9)

    spoken = [f"{words(verdict)} {' to '.join(number(shares.get(verdict, 0.0)) for shares in models.values())}" for verdict in shown]
    return Plot(name, title, note, draw_svg(name, f"{title}: {'; '.join(spoken)}.", draw, height_in=1.35 + 0.17 * -(-len(shown) // 3)))


def promotion_plot(promotion: PromotionResult | None) -> Plot:
    """The difference of pass@1 with its interval, against the margin."""
    name, title = "promotion", "Difference of pass@1"
    level = f"{100 * promotion.confidence:g} % confidence interval" if promotion else "confidence interval"
    note = f"Trained minus base, its {level} (paired bootstrap over problems), and the margin: the interval must reach it."
    if promotion is None:
        return Plot(name, title, note, None, ["promotion decision"])
    result = promotion

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        axes.axvline(0, color=SOFT, linewidth=1)
        axes.axvline(result.margin, color=ORANGE, linestyle="--", linewidth=1.4, label=f"margin {result.margin:g}")
        axes.plot([result.ci_low, result.ci_high], [0, 0], color=BLUE, linewidth=5, alpha=0.35, solid_capstyle="round", label="interval")
        axes.plot([result.difference], [0], "o", color=BLUE, markersize=7, linestyle="", label="difference")
        axes.annotate(signed(result.difference), (result.difference, 0), (0, 8), textcoords="offset points", ha="center", color=INK)
        ends = (0.0, result.margin, result.ci_low, result.ci_high)
        room = 0.15 * (max(ends) - min(ends) or 1.0)
        axes.set(yticks=[], ylim=(-0.8, 1.0), xlim=(min(ends) - room, max(ends) + room))
        axes.spines["left"].set_visible(False)
        legend_above(figure)

    label = f"{title}: {signed(result.difference)}, interval {signed(result.ci_low)} to {signed(result.ci_high)}, margin {result.margin:g}."
    return Plot(name, title, note, draw_svg(name, label, draw, height_in=1.4))


def problems_plot(run: Run) -> Plot:
    """Problems kept, and dropped by reason."""
    dropped = sorted(run.manifest.dropped_since_source.items(), key=lambda item: (-item[1], item[0]))
    bars = [("kept", run.manifest.problems), *((words(reason), count) for reason, count in dropped)]
    if len(bars) > _MOST_BARS:
        rest = bars[_MOST_BARS - 1 :]
        bars = [*bars[: _MOST_BARS - 1], (f"{len(rest)} other reasons", sum(count for _, count in rest))]
    num_dropped = sum(run.manifest.dropped_since_source.values())
    note = f"{run.manifest.problems + num_dropped} in, {run.manifest.problems} kept, {num_dropped} dropped."
    return _bar_plot("problems", "Problems kept and dropped", note, bars, [f"{count}" for _, count in bars])


def seconds_plot(seconds: Mapping[str, float]) -> Plot:
    """Seconds a stage."""
    if not seconds:
        return Plot("seconds", "Time a stage", "", None, ["time a stage"])
    note = f"{duration(sum(seconds.values()))} in all, stages that ran at the same time counted one by one."
    return _bar_plot("seconds", "Time a stage", note, list(seconds.items()), [duration(value) for value in seconds.values()])


def _bar_plot(name: str, title: str, note: str, bars: Sequence[tuple[str, float]], texts: Sequence[str]) -> Plot:
    labels = [visible(label) for label, _ in bars]

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        values = [value for _, value in bars]
        colours = [BLUE, *[GREY] * (len(bars) - 1)] if name == "problems" else BLUE
        drawn = axes.barh(range(len(bars)), values, height=0.62, color=colours)
        axes.bar_label(drawn, texts, padding=4, color=INK, fontsize=8.5)
        axes.set_yticks(range(len(bars)), labels)
        axes.set(ylim=(len(bars) - 0.4, -0.6), xlim=(0, 1.22 * max(*values, 1e-9)), xticks=[])
        axes.grid(False)
        axes.spines[["left", "bottom"]].set_visible(False)

    label = f"{title}: " + "; ".join(f"{label} {text}" for label, text in zip(labels, texts, strict=True)) + "."
    return Plot(name, title, note, draw_svg(name, label, draw, height_in=0.35 + 0.27 * len(bars)))
