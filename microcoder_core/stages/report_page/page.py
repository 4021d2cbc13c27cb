"""The page itself: what the template is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from microcoder_core import __version__
from microcoder_core.stages.report_page.canvas import VERDICT_COLOURS
from microcoder_core.stages.report_page.inputs import Run
from microcoder_core.stages.report_page.outcome_plots import pass_plot, problems_plot, promotion_plot, seconds_plot, verdict_bars
from microcoder_core.stages.report_page.probe_plots import probe_plots
from microcoder_core.stages.report_page.summary import Summary
from microcoder_core.stages.report_page.tables import Row, before_after, cautions, headline
from microcoder_core.stages.report_page.text import NOT_RECORDED, compact, degrees, duration, number, shown, signed, words
from microcoder_core.stages.report_page.training_plots import optimiser_plots, training_plots


@dataclass(frozen=True)
class KeyFigure:
    """One of the numbers at the top."""

    label: str
    value: str
    note: str


def render_page(run: Run, summary: Summary, title: str) -> str:
    """The HTML of the report."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        finalize=shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": number,
        "signed": signed,
        "duration": duration,
        "words": words,
        "yaml": _yaml,
        "compact": compact,
        "degrees": degrees,
    }
    return environment.get_template("page.html.jinja").render(
        title=title,
        version=__version__,
        headline=headline(run).replace("->", "\u2192"),
        cautions=cautions(run),
        key_figures=_key_figures(run, summary),
        run=run,
        summary=summary,
        groups=before_after(run),
        outcomes=[pass_plot(run), verdict_bars(run)],
        training=training_plots(run.history, _length_limit(run)),
        optimiser=optimiser_plots(run.history),
        tenths=_tenths(run),
        probe=probe_plots(run.probe),
        promotion=promotion_plot(run.promotion),
        problems=problems_plot(run),
        time=seconds_plot(run.seconds),
        verdict_colours=VERDICT_COLOURS,
    )


def _key_figures(run: Run, summary: Summary) -> list[KeyFigure]:
    pairs = [
        ("pass@1", summary.base_pass_at_1, summary.trained_pass_at_1),
        ("pass@10", summary.base_pass_at_10, summary.trained_pass_at_10),
    ]
    figures = [
        KeyFigure(name, number(trained, 2), f"{number(base, 2)} before training")
        for name, base, trained in pairs
        if base is not None or trained is not None
    ]
    figures.append(KeyFigure("diversity", number(run.trained.diversity, 2), f"{number(run.base.diversity, 2)} before training"))
    figures.append(
        KeyFigure(
            "temperature",
            NOT_RECORDED if summary.temperature is None else degrees(summary.temperature),
            "chosen by the probe" if run.probe else "of the first training stage",
        )
    )
    figures.append(KeyFigure("training steps", f"{run.train.steps:,}", f"{run.train.samples:,} samples, {run.train.tokens:,} tokens"))
    figures.append(KeyFigure("problems kept", f"{summary.problems_kept:,}", f"of {summary.problems_in:,} in"))
    if run.seconds:
        figures.append(KeyFigure("minutes", number(sum(run.seconds.values()) / 60, 1), "all stages added up"))
    return figures


def _tenths(run: Run) -> list[Row]:
    """The first and the last tenth of training, metric by metric."""
    names = dict.fromkeys((*run.train.first, *run.train.last))
    return [Row(name, run.train.first.get(name), run.train.last.get(name)) for name in names]


def _length_limit(run: Run) -> int | None:
    rollout = run.records["train"].config.get("rollout")
    limit = rollout.get("max_new_tokens") if isinstance(rollout, Mapping) else None
    return limit if isinstance(limit, int) else None


def _yaml(value: Any) -> str:
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True).rstrip() if value else "{}"
