r"""Trains with MicroCoder-GRPO by the flags that GRPO scripts customarily have; each sets one setting of `microcoder train`.

    python train_grpo.py --model_name_or_path Qwen/Qwen2.5-Coder-7B-Instruct --dataset_name problems.jsonl \
        --difficulty_level hard --use_conditional_mask True --diversity_driven_temp True --remove_kl_loss True \
        --clipping_ratio 0.3 --output_dir ./microcoder_model --num_train_epochs 3 --per_device_train_batch_size 4 \
        --gradient_accumulation_steps 8

What is not given stands in configs/quickstart.yaml. Further settings go last, as KEY=VALUE.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from microcoder_core.cli.main import main as microcoder

KL_COEF = 0.04
"""Where KL is kept. Source: GRPO (arXiv 2402.03300)."""
FIRST_TEMPERATURE = 0.7


@click.command(help=__doc__.replace("\n\n    ", "\n\n\b\n    ") if __doc__ else None)
@click.option("--model_name_or_path", required=True, help="Model folder, hub id, or `nano`.")
@click.option("--dataset_name", required=True, help="Data set folder or JSON Lines file of problems (see `microcoder data import`).")
@click.option("--output_dir", required=True, help="Folder for the trained model.")
@click.option("--difficulty_level", type=click.Choice(["easy", "medium", "hard"]), help="Train on problems of this difficulty only.")
@click.option("--use_conditional_mask", type=bool, help="The conditional truncation mask (True), or none.")
@click.option("--diversity_driven_temp", type=bool, help=f"Leave T = {FIRST_TEMPERATURE} when diversity has fallen (True), or keep it.")
@click.option("--remove_kl_loss", type=bool, help=f"No KL (True), or with coefficient {KL_COEF}.")
@click.option("--clipping_ratio", type=float, help="eps_high: how far a ratio may rise above 1.")
@click.option("--num_train_epochs", type=float, help="Passes over the problems.")
@click.option("--per_device_train_batch_size", type=int, help="Problems of an update, times the next one.")
@click.option("--gradient_accumulation_steps", type=int, help="See the one before.")
@click.option("--max_seq_length", type=int, help="Length limit of a completion, tokens.")
@click.option("--learning_rate", type=float, help="Of AdamW.")
@click.option("--resume", is_flag=True, help="Go on from the newest checkpoint of an unfinished run.")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
def train_grpo(model_name_or_path: str, dataset_name: str, output_dir: str, resume: bool, overrides: tuple[str, ...], **flags: Any) -> None:
    """See above."""
    command = ["train", "--model", model_name_or_path, "--problems", dataset_name, "--out", output_dir]
    presets = ["--preset", "microcoder", "--preset", "quickstart"]
    microcoder([*command, *presets, *(["--resume"] if resume else []), *settings(**flags), *overrides])


def settings(
    *,
    difficulty_level: str | None = None,
    use_conditional_mask: bool | None = None,
    diversity_driven_temp: bool | None = None,
    remove_kl_loss: bool | None = None,
    clipping_ratio: float | None = None,
    num_train_epochs: float | None = None,
    per_device_train_batch_size: int | None = None,
    gradient_accumulation_steps: int | None = None,
    max_seq_length: int | None = None,
    learning_rate: float | None = None,
) -> Iterator[str]:
    """The settings of `microcoder train` that the given flags stand for, as KEY=VALUE."""
    if difficulty_level is not None:
        yield f"difficulties=[{difficulty_level}]"
    if use_conditional_mask is not None:
        yield f"mask.kind={'conditional' if use_conditional_mask else 'none'}"
    if diversity_driven_temp is False:
        yield "rollout.temperature_auto=null"
    if remove_kl_loss is not None:
        yield f"loss.kl_coef={0.0 if remove_kl_loss else KL_COEF}"
    if clipping_ratio is not None:
        yield f"loss.clip_high={clipping_ratio}"
    if num_train_epochs is not None:
        yield f"epochs={num_train_epochs}"
    if per_device_train_batch_size is not None or gradient_accumulation_steps is not None:
        problems = (per_device_train_batch_size or 1) * (gradient_accumulation_steps or 1)
        yield f"rollout.train_batch_size={problems}"
        yield f"optimizer.mini_batch_size={problems}"
    if max_seq_length is not None:
        yield f"rollout.max_new_tokens={max_seq_length}"
    if learning_rate is not None:
        yield f"optimizer.learning_rate={learning_rate}"


if __name__ == "__main__":
    train_grpo()
