"""`microcoder probe`."""

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
    preset_option,
    problems_option,
    show,
)
from microcoder_core.stages.results import ProbeResult


@click.command()
@model_option
@problems_option
@out_option
@preset_option("microcoder")
@config_option
@json_option
@overrides_argument
def probe(
    model: str, problems: Path, out: Path, presets: tuple[str, ...], config_file: Path | None, as_json: bool, overrides: tuple[str, ...]
) -> None:
    """Measure response diversity over temperatures and pilot updates, and choose the temperature to train at.

    The presets say how the pilots train: give those that the training will use.
    """
    from microcoder_core.stages.presets import load_probe_config
    from microcoder_core.stages.probe import probe as run_probe
    from microcoder_core.tracking.stage_run import stage_run

    config = load_probe_config(presets, overrides, files_of(config_file))
    with stage_run("probe", spool=out) as tracker:
        result = run_probe(config, model=model, problems=problems, out=out, tracker=tracker)
    show(result, probe_lines(result), as_json=as_json)


def probe_lines(result: ProbeResult) -> str:
    """The probe's numbers as a table for a terminal."""
    pilots = {pilot.temperature: pilot for pilot in result.pilots}
    lines = ["     T  diversity  pass@1  truncated  late change in pilot"]
    for point in result.grid:
        pilot = pilots.get(point.temperature)
        change = f"{pilot.late_change:+.1%}{'' if pilot.holds else '  (does not hold)'}" if pilot else "no pilot"
        mark = "*" if point.temperature == result.temperature else " "
        lines.append(
            f"{mark}{point.temperature:5.2f}  {point.diversity:9.3f}  {point.pass_at_1:6.3f}  {point.truncated_frac:9.3f}  {change}"
        )
    return "\n".join([*lines, f"temperature {result.temperature:g}: {result.reason}"])
