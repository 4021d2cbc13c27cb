"""`microcoder promote`."""

from __future__ import annotations

from pathlib import Path

import click

from microcoder_core.cli.options import config_option, files_of, json_option, out_option, overrides_argument, show
from microcoder_core.config import load_config
from microcoder_core.stages.results import PromotionResult


@click.command()
@click.option("--base", required=True, type=click.Path(path_type=Path), metavar="DIR", help="Evaluation of the model before training.")
@click.option("--trained", required=True, type=click.Path(path_type=Path), metavar="DIR", help="Evaluation of the trained model.")
@click.option("--model", required=True, type=click.Path(path_type=Path), metavar="DIR", help="The trained model's folder.")
@out_option
@click.option("--no-registry", is_flag=True, help="Decide only; register nothing.")
@config_option
@json_option
@overrides_argument
def promote(
    base: Path,
    trained: Path,
    model: Path,
    out: Path,
    no_registry: bool,
    config_file: Path | None,
    as_json: bool,
    overrides: tuple[str, ...],
) -> None:
    """Register a trained model as challenger; make it champion if it is better.

    KEY=VALUE sets one setting, such as margin=0.02, confidence=0.9 or model_name=my-coder. Exit code 0 also where the model is not
    promoted: deciding was the work.
    """
    from microcoder_core.stages.promote import PromoteConfig
    from microcoder_core.stages.promote import promote as run_promote
    from microcoder_core.tracking.stage_run import stage_run

    config = load_config(PromoteConfig, files_of(config_file), [*overrides, *(["registry=false"] if no_registry else [])])
    with stage_run("promote", spool=out) as tracker:
        result = run_promote(config, base=base, trained=trained, model=model, out=out, tracker=tracker)
    show(result, promotion_lines(result), as_json=as_json)


def promotion_lines(result: PromotionResult) -> str:
    """The decision for a terminal."""
    lines = [
        f"{'promoted' if result.promoted else 'not promoted'}: {result.reason}",
        f"pass@1 {result.base_pass_at_1:.3f} -> {result.trained_pass_at_1:.3f}",
    ]
    aliases = "challenger and champion" if result.promoted else "challenger"
    lines.append(f"{result.model_name} version {result.version}: {aliases}" if result.version else "not registered")
    return "\n".join(lines)
