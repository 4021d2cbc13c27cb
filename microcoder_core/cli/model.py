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


@model.command()
@click.argument("folder", type=PATH, metavar="DIR")
@click.option("--write", is_flag=True, help="Put it into DIR/README.md in the place of the card there.")
def card(folder: Path, write: bool) -> None:
    """Show the model card of a trained model folder, from the record of its training."""
    from microcoder_core.stages.model_card import card_of_folder
    from microcoder_core.storage.atomic import write_text

    text = card_of_folder(folder)
    if write:
        write_text(folder / "README.md", text)
    click.echo(f"card: {folder / 'README.md'}" if write else text, nl=write)


@model.command()
@click.argument("folder", type=PATH, metavar="DIR")
@click.option("--repo", required=True, metavar="OWNER/NAME", help="Repository of the hub; made where it is not there yet.")
@click.option("--private", is_flag=True, help="Let nobody else see the repository.")
@json_option
def push(folder: Path, repo: str, private: bool, as_json: bool) -> None:
    """Upload a trained model folder to the Hugging Face hub.

    Weights, tokenizer, prompt template, card, configuration and metrics are uploaded; samples, records and whatever else is in the folder
    are not. The token is HF_TOKEN, or that of `hf auth login`.
    """
    from microcoder_core.stages.push import push_model

    result = push_model(folder, repo, private=private)
    show(result, f"uploaded {len(result.files)} files: {', '.join(result.files)}\nmodel: {result.url}", as_json=as_json)
