"""Pre-training of the nano model, seeded and small enough for two CPU cores."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from microcoder_core.data.drills import Drill
from microcoder_core.nano.corpus import sample_document, training_drills
from microcoder_core.nano.tokenizer import VOCABULARY

if TYPE_CHECKING:
    import torch

MAX_RESPONSE_TOKENS = 72
"""Answers that do not end are cut off here, beyond the length limit that the model is sampled with."""
LAYERS = 4
BATCH = 32
MATRIX_LEARNING_RATE = 6e-3
"""Peak of the matrices' schedule. Chosen between 5e-3 and 1e-2 by the loss after 250 steps."""
PEAK_LEARNING_RATE = 8e-3
"""Peak for embeddings and norms. Chosen alike, between 5e-3 and 1e-2."""
_WARM_UP_STEPS = 50
_BATCHES_SORTED = 16
_IGNORED = -100  # the label that cross entropy leaves out


@dataclass(frozen=True, slots=True)
class Batch:
    """Right-padded documents, which a causal model needs no attention mask for; `labels` hold the answers' tokens only."""

    input_ids: torch.Tensor
    labels: torch.Tensor


def build_model(seed: int) -> Any:
    """A Qwen3ForCausalLM with random weights."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=512,
        tie_word_embeddings=True,
    )
    return Qwen3ForCausalLM(config)


def batches(tokenizer: Any, seed: int) -> Iterator[Batch]:
    """Batches without end, drawn from the training drills; documents of like length share a batch, which saves padding."""
    rng = random.Random(f"pre-training {seed}")
    drills = training_drills()
    while True:
        documents = [_document_ids(rng.choice(drills), tokenizer, rng) for _ in range(BATCH * _BATCHES_SORTED)]
        documents.sort(key=lambda document: len(document[0]) + len(document[1]))
        starts = list(range(0, len(documents), BATCH))
        rng.shuffle(starts)
        for start in starts:
            yield _batch(documents[start : start + BATCH], tokenizer.pad_token_id)


def _document_ids(drill: Drill, tokenizer: Any, rng: random.Random) -> tuple[list[int], list[int]]:
    """Prompt and answer of one document as tokens."""
    document = sample_document(drill, rng)
    prompt = tokenizer(document.prompt, add_special_tokens=False)["input_ids"]
    response = tokenizer(document.response, add_special_tokens=False)["input_ids"]
    return prompt, [*response, tokenizer.eos_token_id] if document.ends else response[:MAX_RESPONSE_TOKENS]


def _batch(documents: list[tuple[list[int], list[int]]], pad_id: int) -> Batch:
    import torch

    width = max(len(prompt) + len(response) for prompt, response in documents)
    input_ids = torch.full((len(documents), width), pad_id)
    labels = torch.full((len(documents), width), _IGNORED)
    for row, (prompt, response) in enumerate(documents):
        end = len(prompt) + len(response)
        input_ids[row, :end] = torch.tensor(prompt + response)
        labels[row, len(prompt) : end] = torch.tensor(response)
    return Batch(input_ids, labels)


def pretrain(model: Any, tokenizer: Any, steps: int, seed: int, schedule_steps: int | None = None) -> Iterator[float]:
    """Trains `model`; yields the loss of each step.

    Args:
        schedule_steps: Length of the learning-rate schedule where it is longer than `steps` (to reproduce the first steps only).
    """
    import torch

    optimisers = _optimisers(model)
    scale = _schedule(schedule_steps or steps)
    schedules = [torch.optim.lr_scheduler.LambdaLR(optimiser, scale) for optimiser in optimisers]
    model.train()
    for _, batch in zip(range(steps), batches(tokenizer, seed), strict=False):
        loss = model(input_ids=batch.input_ids, labels=batch.labels).loss
        model.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimiser, schedule in zip(optimisers, schedules, strict=True):
            optimiser.step()
            schedule.step()
        yield float(loss.detach())


def _optimisers(model: Any) -> list[torch.optim.Optimizer]:
    """Muon for the layers' matrices, which then learn in about half the steps (docs/nano.md); AdamW for embeddings and norms."""
    import torch

    matrices = [parameter for name, parameter in model.named_parameters() if parameter.ndim == 2 and "embed" not in name]
    others = [parameter for name, parameter in model.named_parameters() if parameter.ndim != 2 or "embed" in name]
    return [
        torch.optim.Muon(matrices, lr=MATRIX_LEARNING_RATE, weight_decay=0.01),
        torch.optim.AdamW(others, lr=PEAK_LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.01, fused=True),
    ]


def _schedule(steps: int) -> Any:
    def scale(step: int) -> float:
        warm_up = min(1.0, (step + 1) / _WARM_UP_STEPS)
        return warm_up * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * min(step / steps, 1.0))))

    return scale
