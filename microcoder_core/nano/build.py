"""Builds the nano model from nothing: `python -m microcoder_core.nano.build --out DIR`.

The same machine, library versions and thread count give the same bytes. Another machine gives the same drills and tokenizer, and first
losses that agree to a part in a thousand. Needs torch 2.9 or newer (Muon); using the shipped model does not.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from microcoder_core.errors import InputError
from microcoder_core.nano.corpus import PROMPT
from microcoder_core.nano.pretraining import build_model, pretrain
from microcoder_core.nano.tokenizer import build_tokenizer
from microcoder_core.progress import Progress
from microcoder_core.sampling.prompt import PromptTemplate
from microcoder_core.storage.atomic import atomic_folder, check_replaceable, write_text

SEED = 7
STEPS = 900
BUILD_RECORD = "build.json"
_RECORDED_STEPS = 10


def build(out: Path, *, steps: int = STEPS, seed: int = SEED, threads: int = 1) -> Mapping[str, Any]:
    """Writes the model folder `out`; returns what build.json records: settings and losses."""
    import torch

    check_replaceable(out, "nano model")
    torch.set_num_threads(threads)
    tokenizer = build_tokenizer(seed)
    model = build_model(seed)
    losses: list[float] = []
    with Progress("pre-training", total=steps) as progress:
        for loss in pretrain(model, tokenizer, steps, seed):
            losses.append(loss)
            progress.advance(note=f"loss {loss:.3f}")
    record = {
        "seed": seed,
        "steps": steps,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "first_losses": [round(loss, 6) for loss in losses[:_RECORDED_STEPS]],
        "last_loss": round(sum(losses[-20:]) / len(losses[-20:]), 4),
    }
    with atomic_folder(out, "nano model") as folder:
        _save(model, tokenizer, folder)
        write_text(folder / BUILD_RECORD, json.dumps(record, indent=2) + "\n")
    return record


def _save(model: Any, tokenizer: Any, folder: Path) -> None:
    import torch
    from transformers import GenerationConfig

    ids = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    model.generation_config = GenerationConfig(do_sample=True, temperature=1.0, top_k=0, max_new_tokens=64, **ids)
    model.config.update({**ids, "bos_token_id": None})
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    PromptTemplate(kind="plain", text=PROMPT).save(folder)


@click.command(help=__doc__)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder to write; it must not exist.")
@click.option("--steps", default=STEPS, show_default=True, type=click.IntRange(min=1))
@click.option("--seed", default=SEED, show_default=True)
@click.option("--threads", default=1, show_default=True, type=click.IntRange(min=1), help="One is fastest on a busy machine.")
def main(out: Path, steps: int, seed: int, threads: int) -> None:
    """Builds and says what came out."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        record = build(out, steps=steps, seed=seed, threads=threads)
    except InputError as error:
        raise click.BadParameter(str(error), param_hint="--out") from None
    click.echo(f"{out}: {record['parameters']:,} parameters, loss {record['last_loss']} after {steps} steps")


if __name__ == "__main__":
    main()
