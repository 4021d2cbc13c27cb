"""`microcoder report`."""

from __future__ import annotations

from pathlib import Path

import click

from microcoder_core.cli.options import PATH, config_option, files_of, out_option, overrides_argument
from microcoder_core.config import load_config


@click.command()
@click.option("--curated", required=True, type=PATH, metavar="D", help="Data set that was trained on (output of data curate).")
@click.option("--probe", type=PATH, metavar="DIR", help="Output of probe.")
@click.option("--trained", required=True, type=PATH, metavar="DIR", help="Output of train.")
@click.option("--base-evaluation", required=True, type=PATH, metavar="DIR", help="Evaluation of the model before training.")
@click.option("--trained-evaluation", required=True, type=PATH, metavar="DIR", help="Evaluation of the trained model.")
@click.option("--promotion", type=PATH, metavar="DIR", help="Output of promote.")
@out_option
@config_option
@overrides_argument
def report(
    curated: Path,
    probe: Path | None,
    trained: Path,
    base_evaluation: Path,
    trained_evaluation: Path,
    promotion: Path | None,
    out: Path,
    config_file: Path | None,
    overrides: tuple[str, ...],
) -> None:
    """Write one self-contained HTML page about a run; prints its path.

    KEY=VALUE sets one setting, such as title='Weekly run' or num_samples=10.
    """
    from microcoder_core.stages.report import ReportConfig
    from microcoder_core.stages.report import report as run_report
    from microcoder_core.tracking.stage_run import stage_run

    config = load_config(ReportConfig, files_of(config_file), overrides)
    with stage_run("report", spool=out) as tracker:
        page = run_report(
            config,
            curated=curated,
            probe=probe,
            trained=trained,
            base_evaluation=base_evaluation,
            trained_evaluation=trained_evaluation,
            promotion=promotion,
            out=out,
            tracker=tracker,
        )
    click.echo(page)
