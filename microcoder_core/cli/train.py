"""`microcoder train`."""

from __future__ import annotations

from pathlib import Path

import click

from microcoder_core.cli.options import (
    PATH,
    json_option,
    model_option,
    out_option,
    overrides_argument,
    preset_option,
    problems_option,
    show,
)


@click.command()
@model_option
@problems_option
@out_option
@preset_option("microcoder")
@click.option("--probe", type=PATH, metavar="DIR", help="Output of `microcoder probe`: its temperature is the first stage's.")
@click.option("--resume", is_flag=True, help="Go on from the newest checkpoint of an unfinished run.")
@click.option("--work", type=PATH, metavar="DIR", help="Where checkpoints are kept until the run has ended. Default: OUT.work.")
@json_option
@overrides_argument
def train(
    model: str,
    problems: Path,
    out: Path,
    presets: tuple[str, ...],
    probe: Path | None,
    resume: bool,
    work: Path | None,
    as_json: bool,
    overrides: tuple[str, ...],
) -> None:
    """Train a model with MicroCoder-GRPO.

    KEY=VALUE sets one setting, such as rollout.group_size=16 or optimizer.learning_rate=2e-6. Ctrl-C and SIGTERM save, so that the same
    command with --resume goes on.
    """
    from microcoder_core.stages.presets import load_train_config
    from microcoder_core.stages.train import train as run_train
    from microcoder_core.tracking.stage_run import stage_run

    config = load_train_config(presets, overrides)
    with stage_run("train", spool=out) as tracker:
        result = run_train(config, model=model, problems=problems, out=out, tracker=tracker, probe=probe, resume=resume, work=work)
    before, after = result.first.get("microcoder/pass_at_1"), result.last.get("microcoder/pass_at_1")
    gain = f"; pass@1 on the training problems {before:.3f} -> {after:.3f}" if before is not None and after is not None else ""
    show(result, f"trained {result.steps} steps, {result.tokens} completion tokens{gain}\nmodel: {out}", as_json=as_json)
