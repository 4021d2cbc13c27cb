"""`microcoder pipeline`: run the training pipeline on this machine, or compile it for a cluster."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import click

from pipelines.compiling import COMPILED, check_compiled, write_compiled


@click.group()
def pipeline() -> None:
    """Run or compile the training pipeline: import, curate, probe, train, evaluate, promote, report."""


@pipeline.command("compile")
@click.option("--check", is_flag=True, help="Write nothing; fail where the file is stale.")
@click.option("--out", type=click.Path(path_type=Path), default=COMPILED, metavar="FILE", help="Default: pipelines/compiled/train.yaml.")
def compile_command(check: bool, out: Path) -> None:
    """Write the pipeline as the YAML that Kubeflow Pipelines takes.

    MICROCODER_IMAGE_CPU and MICROCODER_IMAGE_GPU name other images to run in.
    """
    if out.suffix not in (".yaml", ".yml"):
        raise click.UsageError(f"--out must be a file named .yaml, got {out}")
    if check:
        check_compiled(out)
        click.echo(f"{out} is up to date")
        return
    write_compiled(out)
    click.echo(f"wrote {out}")


@pipeline.command()
@click.option("--local", is_flag=True, required=True, help="On this machine (the only place so far).")
@click.option("--preset", "presets", multiple=True, metavar="NAME", help="File of configs/pipelines; several are merged left to right.")
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="DIR", help="Folder of the run; an earlier run there goes.")
@click.option("--resume", is_flag=True, help="Go on with the run in DIR: what is done is not repeated.")
@click.argument("parameters", nargs=-1, metavar="[PARAMETER=VALUE]...")
def run(local: bool, presets: tuple[str, ...], out: Path, resume: bool, parameters: tuple[str, ...]) -> None:
    """Run the training pipeline.

    PARAMETER=VALUE sets one parameter of the pipeline, such as model=nano, seed=1 or
    'train_overrides=[max_steps=10, loss.clip_high=0.3]'; docs/pipeline.md has all of them.
    """
    from pipelines.local_run import run_training
    from pipelines.outcome import outcome_lines, publish
    from pipelines.parameters import declared_types, read_parameters

    started = time.monotonic()
    outputs = run_training(out, read_parameters(presets, parameters, declared_types()), resume=resume)
    publish(out, outputs, time.monotonic() - started)
    shutil.rmtree(out / "work", ignore_errors=True)
    for line in outcome_lines(out, outputs):
        click.echo(line)
