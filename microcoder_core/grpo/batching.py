"""Which problems come next, and how sequences are cut into micro-batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredSequence:
    """One completion as the loss needs it."""

    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    old_logprobs: tuple[float, ...]
    advantage: float
    temperature: float
    weight: float
    """Weight of each completion token in the loss, see `loss.token_weight`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """Prompts padded left, completions padded right: every completion starts in the same column.

    Shape legend: N sequences, P longest prompt, C longest completion.
    """

    input_ids: torch.Tensor
    """`[N, P + C]`"""
    attention_mask: torch.Tensor
    """`[N, P + C]`"""
    old_logprobs: torch.Tensor
    """`[N, C]`"""
    weights: torch.Tensor
    """`[N, C]`, 0 on padding."""
    advantages: torch.Tensor
    """`[N]`"""
    temperatures: torch.Tensor
    """`[N]`"""

    @property
    def completion_width(self) -> int:
        """C, tokens."""
        return self.old_logprobs.shape[1]


def problem_order(position: int, count: int, num_problems: int, seed: int) -> list[int]:
    """Indices of the `count` problems from `position` on in an endless series of shuffled epochs."""
    indices = []
    for place in range(position, position + count):
        epoch, offset = divmod(place, num_problems)
        indices.append(int(np.random.default_rng([seed, epoch]).permutation(num_problems)[offset]))
    return indices


def micro_batches(sequences: Sequence[ScoredSequence], max_tokens: int, pad_id: int, device: torch.device | str) -> Iterator[MicroBatch]:
    """Sequences of like length together, each batch within `max_tokens` padded tokens (or one sequence, however long)."""
    chosen: list[ScoredSequence] = []
    width = 0
    for sequence in sorted(sequences, key=lambda one: (len(one.completion_ids), len(one.prompt_ids)), reverse=True):
        prompt_width = max([len(sequence.prompt_ids), *(len(one.prompt_ids) for one in chosen)])
        width = prompt_width + max([len(sequence.completion_ids), *(len(one.completion_ids) for one in chosen)])
        if chosen and width * (len(chosen) + 1) > max_tokens:
            yield collate(chosen, pad_id, device)
            chosen = []
        chosen.append(sequence)
    if chosen:
        yield collate(chosen, pad_id, device)


def collate(sequences: Sequence[ScoredSequence], pad_id: int, device: torch.device | str) -> MicroBatch:
    """One micro-batch of all `sequences`."""
    prompt_width = max(len(one.prompt_ids) for one in sequences)
    width = max(len(one.completion_ids) for one in sequences)
    ids, mask, logprobs, weights = [], [], [], []
    for one in sequences:
        left, right = prompt_width - len(one.prompt_ids), width - len(one.completion_ids)
        ids.append([pad_id] * left + [*one.prompt_ids, *one.completion_ids] + [pad_id] * right)
        mask.append([0] * left + [1] * (len(one.prompt_ids) + len(one.completion_ids)) + [0] * right)
        logprobs.append([*one.old_logprobs] + [0.0] * right)
        weights.append([one.weight] * len(one.completion_ids) + [0.0] * right)
    return MicroBatch(
        input_ids=torch.tensor(ids, device=device),
        attention_mask=torch.tensor(mask, device=device),
        old_logprobs=torch.tensor(logprobs, dtype=torch.float32, device=device),
        weights=torch.tensor(weights, dtype=torch.float32, device=device),
        advantages=torch.tensor([one.advantage for one in sequences], dtype=torch.float32, device=device),
        temperatures=torch.tensor([one.temperature for one in sequences], dtype=torch.float32, device=device),
    )
