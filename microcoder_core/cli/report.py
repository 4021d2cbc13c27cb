"""`microcoder report`."""

from __future__ import annotations

from pathlib import Path

import click

_FOLDER = click.Path(path_type=Path)


@click.command()
@click.option("--curated", type=_FOLDER, required=True, help="Data set that was trained on (output of data curate).")
@click.option("--probe", type=_FOLDER, help="Output of probe.")
@click.option("--trained", type=_FOLDER, required=True, help="Output of train.")
@click.option("--base-evaluation", type=_FOLDER, required=True, help="Evaluation of the model before training.")
@click.option("--trained-evaluation", type=_FOLDER, required=True, help="Evaluation of the trained model.")
@click.option("--promotion", type=_FOLDER, help="Output of promote.")
@click.option("--out", type=_FOLDER, required=True, help="Folder for report.html and summary.json.")
@click.option("--config", "files", type=_FOLDER, multiple=True, help="YAML file of settings; later files win.")
@click.option("--set", "overrides", metavar="KEY=VALUE", multiple=True, help="One setting, such as title='Weekly run'.")
def report(
    curated: Path,
    probe: Path | None,
    trained: Path,
    base_evaluation: Path,
    trained_evaluation: Path,
    promotion: Path | None,
    out: Path,
    files: tuple[Path, ...],
    overrides: tuple[str, ...],
) -> None:
    """Write one self-contained HTML page about a run; prints its path."""
    from microcoder_core.config import load_config
    from microcoder_core.stages import report as stage
    from microcoder_core.tracking import NullTracker

    page = stage.report(
        load_config(stage.ReportConfig, files, overrides),
        curated=curated,
        probe=probe,
        trained=trained,
        base_evaluation=base_evaluation,
        trained_evaluation=trained_evaluation,
        promotion=promotion,
        out=out,
        tracker=NullTracker(),
    )
    click.echo(page)
