"""`microcoder evaluate`."""

from __future__ import annotations

from pathlib import Path

import click

from microcoder_core.cli.options import (
    config_option,
    files_of,
    json_option,
    model_option,
    out_option,
    overrides_argument,
    problems_option,
    show,
)
from microcoder_core.config import load_config
from microcoder_core.stages.results import EvaluationResult


@click.command()
@model_option
@problems_option
@out_option
@click.option("--samples", type=int, metavar="N", help="Completions a problem. Default: 10.")
@click.option("--k", metavar="K,K,...", help="pass@k for each. Default: 1,5,10.")
@config_option
@json_option
@overrides_argument
def evaluate(
    model: str,
    problems: Path,
    out: Path,
    samples: int | None,
    k: str | None,
    config_file: Path | None,
    as_json: bool,
    overrides: tuple[str, ...],
) -> None:
    """Measure unbiased pass@k of a model on problems.

    KEY=VALUE sets one setting, such as temperature=0.2, max_new_tokens=2048 or date_from=2025-01-01.
    """
    from microcoder_core.stages.evaluate import EvaluateConfig
    from microcoder_core.stages.evaluate import evaluate as run_evaluate
    from microcoder_core.tracking.stage_run import stage_run

    given = [f"samples={samples}"] if samples is not None else []
    given += [f"k=[{k}]"] if k is not None else []
    config = load_config(EvaluateConfig, files_of(config_file), [*overrides, *given])
    with stage_run("evaluate", spool=out) as tracker:
        result = run_evaluate(config, model=model, problems=problems, out=out, tracker=tracker)
    show(result, evaluation_lines(result), as_json=as_json)


def evaluation_lines(result: EvaluationResult) -> str:
    """The scores for a terminal, with the settings that they hold for."""
    groups = [("all", result.problems, result.pass_at_k)]
    groups += [(level, table.problems, table.pass_at_k) for level, table in result.by_difficulty.items()]
    lines = [
        f"{result.problems} problems, {result.samples} samples each, T = {result.temperature:g}, {result.max_new_tokens} tokens at most"
    ]
    lines += [f"{name:8}{count:6}  " + "  ".join(f"pass@{k} {value:.3f}" for k, value in scores.items()) for name, count, scores in groups]
    verdicts = ", ".join(f"{verdict} {share:.1%}" for verdict, share in sorted(result.verdicts.items(), key=lambda item: -item[1]))
    lines.append(f"verdicts: {verdicts}")
    if result.ungraded:
        lines.append(f"{result.ungraded} completions could not be graded (the judge's fault) and are left out")
    return "\n".join(lines)
