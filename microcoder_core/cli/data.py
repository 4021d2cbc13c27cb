"""`microcoder data`: import, curate, show and export problems."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from microcoder_core.config import build_config, load_config
from microcoder_core.data.text import plain_text
from microcoder_core.records import Problem
from microcoder_core.storage.datasets import Manifest, export_jsonl, find_problem, problem_row, read_problems
from microcoder_core.storage.rows import dump_row
from microcoder_core.tracking import NullTracker, Tracker

_FOLDER = click.Path(path_type=Path)
_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for machines.")
_track_option = click.option("--track", is_flag=True, help="Record the run in MLflow (so does MLFLOW_TRACKING_URI).")


@click.group()
def data() -> None:
    """Import, curate, show and export problems."""


@data.command(name="import")
@click.argument("format_name", metavar="FORMAT")
@click.argument("source")
@click.option("--out", type=_FOLDER, required=True, metavar="DATASET", help="Folder of the data set to write.")
@_track_option
@_json_option
def import_command(format_name: str, source: str, out: Path, track: bool, as_json: bool) -> None:
    """Write the problems of SOURCE as a data set.

    FORMAT is humaneval, mbpp, jsonl (rows in the Problem form; .gz and .zst too) or drills (SOURCE is then train or held_out).
    """
    from microcoder_core.stages.import_problems import ImportConfig, import_problems

    config = build_config(ImportConfig, {"format": format_name}, "import")
    with _tracker("import", track, out) as tracker:
        manifest = import_problems(config, source=source, out=out, tracker=tracker)
    _print_counts(manifest, out, as_json)


@data.command()
@click.argument("dataset", type=_FOLDER)
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--out", type=_FOLDER, required=True, metavar="DATASET", help="Folder of the data set to write.")
@click.option("--config", "files", type=_FOLDER, multiple=True, metavar="FILE", help="YAML file; a later one wins.")
@click.option("--exclude", type=_FOLDER, multiple=True, metavar="DATASET", help="Data set that no kept problem may overlap with.")
@_track_option
@_json_option
def curate(
    dataset: Path, overrides: tuple[str, ...], out: Path, files: tuple[Path, ...], exclude: tuple[Path, ...], track: bool, as_json: bool
) -> None:
    """Keep the problems of DATASET that are fit to train on.

    Each other one is left out with a reason, in dropped.jsonl. Settings: KEY=VALUE, such as constraints.max_tests=10.
    """
    from microcoder_core.stages.curate import CurateConfig
    from microcoder_core.stages.curate import curate as curate_stage

    config = load_config(CurateConfig, files, overrides)
    with _tracker("curate", track, out) as tracker:
        manifest = curate_stage(config, problems=dataset, exclude=exclude, out=out, tracker=tracker)
    _print_counts(manifest, out, as_json)


@data.command()
@click.argument("dataset", type=_FOLDER)
@click.option("--problem", "problem_id", metavar="ID", help="Show this problem whole.")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Problems to list.")
@_json_option
def show(dataset: Path, problem_id: str | None, limit: int, as_json: bool) -> None:
    """List the problems of DATASET, or show one."""
    listed = problem_id is None
    problems = list(itertools.islice(read_problems(dataset), limit)) if problem_id is None else [find_problem(dataset, problem_id)]
    if as_json:
        for problem in problems:
            click.echo(dump_row(problem_row(problem)), nl=False)
    elif listed:
        _print_table(problems)
    else:
        click.echo(_described(problems[0]))


@data.command()
@click.argument("dataset", type=_FOLDER)
@click.option("--out", type=_FOLDER, required=True, metavar="FILE", help="File named .jsonl, .jsonl.gz or .jsonl.zst.")
@_json_option
def export(dataset: Path, out: Path, as_json: bool) -> None:
    """Write the problems of DATASET as JSON Lines."""
    count = export_jsonl(read_problems(dataset), out)
    click.echo(json.dumps({"problems": count, "out": str(out)}) if as_json else f"{count} problems written to {out}")


@contextlib.contextmanager
def _tracker(stage: str, track: bool, out: Path) -> Iterator[Tracker]:
    """A tracker where one was asked for; MLflow takes seconds to import, so light commands go without."""
    if not track and not os.environ.get("MLFLOW_TRACKING_URI"):
        yield NullTracker()
        return
    from microcoder_core.tracking.stage_run import stage_run

    with stage_run(stage, spool=out) as tracker:
        yield tracker


def _print_counts(manifest: Manifest, out: Path, as_json: bool) -> None:
    num_dropped = sum(manifest.dropped.values())
    if as_json:
        counts = {"in": manifest.records_in, "kept": manifest.problems, "dropped": manifest.dropped, "out": str(out)}
        click.echo(json.dumps(counts))
        return
    click.echo(f"problems in      {manifest.records_in}")
    click.echo(f"problems kept    {manifest.problems}")
    click.echo(f"problems dropped {num_dropped}")
    for reason, count in sorted(manifest.dropped.items(), key=lambda item: (-item[1], item[0])):
        click.echo(f"  {count:6d} {reason}")
    click.echo(f"data set         {out}")


def _print_table(problems: list[Problem]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, expand=True)
    table.add_column("problem", overflow="fold", max_width=30)
    for heading in ("form", "tests", "checker", "level", "refs"):
        table.add_column(heading, no_wrap=True, min_width=len(heading))
    table.add_column("statement", no_wrap=True, overflow="ellipsis", ratio=1)
    for problem in problems:
        cells = (problem.problem_id, problem.form, len(problem.tests), problem.checker.kind, problem.difficulty or problem.human_difficulty)
        summary = " ".join(plain_text(problem.statement).split())
        table.add_row(*(Text(str(cell or "-")) for cell in (*cells, len(problem.reference_solutions), summary)))
    Console().print(table)


def _described(problem: Problem) -> str:
    """One problem for a person to read: its fields, then its texts."""
    row = problem_row(problem)
    texts = {name: row.pop(name, None) for name in ("statement", "starter_code", "reference_solutions", "wrong_solutions", "tests")}
    lines = [f"{name}: {value if isinstance(value, str) else json.dumps(value)}" for name, value in row.items()]
    lines += _section("statement", plain_text(problem.statement))
    lines += _section("starter code", texts["starter_code"])
    for name in ("reference_solutions", "wrong_solutions"):
        for number, program in enumerate(texts[name] or ()):
            lines += _section(f"{name.replace('_', ' ')[:-1]} {number}", program)
    for number, test in enumerate(texts["tests"] or ()):
        lines += _section(f"test {number}", f"input:    {_shown(test['input'])}\nexpected: {_shown(test['expected'])}")
    return "\n".join(lines)


def _section(title: str, text: str | None) -> list[str]:
    return [] if not text else ["", f"--- {title}", text.strip("\n")]


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 400 else f"{text[:400]}... ({len(text)} characters)"
