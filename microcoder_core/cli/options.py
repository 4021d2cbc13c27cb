"""Options that several commands share."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from pydantic import BaseModel

from microcoder_core.cpus import is_main_process

Command = TypeVar("Command", bound=Callable[..., Any])

PATH = click.Path(path_type=Path)

model_option = click.option("--model", required=True, metavar="M", help="A model folder, a hub id, or 'nano'.")
problems_option = click.option("--problems", required=True, type=PATH, metavar="D", help="Data set folder or JSON Lines file of problems.")
out_option = click.option("--out", required=True, type=PATH, metavar="DIR", help="Output folder; appears when the work is done.")
config_option = click.option("--config", "config_file", type=PATH, metavar="F", help="YAML file of settings.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
overrides_argument = click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")


def preset_option(default: str) -> Callable[[Command], Command]:
    """`--preset`, which may be given several times."""
    text = f"Preset of configs/ or a YAML file; several are merged left to right. Default: {default}."
    return click.option("--preset", "presets", multiple=True, default=(default,), metavar="NAME", help=text)


def files_of(config_file: Path | None) -> tuple[Path, ...]:
    """The `--config` file as the list that `load_config` takes."""
    return () if config_file is None else (config_file,)


def show(result: BaseModel, lines: str, *, as_json: bool) -> None:
    """Prints a result: `lines` for a person, JSON for a machine."""
    if is_main_process():
        click.echo(json.dumps(result.model_dump(mode="json")) if as_json else lines)
