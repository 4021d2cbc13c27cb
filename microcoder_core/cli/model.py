"""`microcoder model`: import, describe and publish models."""

from __future__ import annotations

from pathlib import Path

import click

from microcoder_core.cli.options import PATH, json_option, out_option, show


@click.group()
def model() -> None:
    """Import models from GGUF files, write model cards, upload trained models."""


@model.command("import-gguf")
@click.argument("file", type=PATH, metavar="FILE.gguf")
@out_option
@json_option
def import_gguf(file: Path, out: Path, as_json: bool) -> None:
    """Turn a GGUF file into a model folder for --model.

    The weights are unpacked to bfloat16; what precision quantization took from them does not come back.
    """
    from microcoder_core.stages.import_gguf import import_gguf as run_import

    result = run_import(file, out)
    asked = "chat template" if result.has_chat_template else "no chat template"
    line = f"imported {result.architecture}, {result.parameters:,} parameters, from {result.quantization}; {asked}, ends at "
    show(result, f"{line}{' or '.join(result.end_tokens)}\nmodel: {out}", as_json=as_json)
