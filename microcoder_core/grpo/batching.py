"""Which problems come next, and how sequences are laid out for the model.

Completions of one prompt may share a row, `[prompt][completion][completion]...`: each attends to the prompt and to itself only, and its
positions begin where the prompt ends, so that the prompt goes through the model once.

Shape legend: N rows, L tokens of the longest row, T completion tokens of all rows, without padding.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredSequence:
    """One completion as the loss needs it."""

    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    sampler_logprobs: tuple[float, ...]
    """Recorded while sampling."""
    old_logprobs: tuple[float, ...]
    """Of the policy that sampled: as recorded, or as the trainer computes it."""
    advantage: float
    temperature: float
    weight: float
    """Weight of each completion token in the loss, see `loss.token_weight`."""


@dataclass(frozen=True, slots=True)
class Row:
    """Completions of one prompt that share its forward pass."""

    prompt_ids: tuple[int, ...]
    sequences: tuple[ScoredSequence, ...]

    @property
    def length(self) -> int:
        """Tokens."""
        return len(self.prompt_ids) + sum(len(one.completion_ids) for one in self.sequences)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionTokens:
    """The completion tokens of a micro-batch, each with what its loss needs; every tensor is `[T]`."""

    source: torch.Tensor
    """Where the hidden state that predicts it stands in the flattened `[N * L]`."""
    targets: torch.Tensor
    """The token itself."""
    sampler_logprobs: torch.Tensor
    old_logprobs: torch.Tensor
    ref_logprobs: torch.Tensor | None
    """Of the model at the start, where KL is on."""
    weights: torch.Tensor
    advantages: torch.Tensor
    temperatures: torch.Tensor

    def split(self, size: int) -> Iterator[CompletionTokens]:
        """Parts of up to `size` tokens, in order."""
        for first in range(0, len(self.targets), size):
            part = slice(first, first + size)
            kept = {one.name: getattr(self, one.name)[part] for one in fields(self) if one.name != "ref_logprobs"}
            yield CompletionTokens(**kept, ref_logprobs=None if self.ref_logprobs is None else self.ref_logprobs[part])


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """Rows padded on the right."""

    input_ids: torch.Tensor
    """`[N, L]`"""
    position_ids: torch.Tensor
    """`[N, L]`"""
    attention_mask: torch.Tensor | None
    """`[N, 1, L, L]`, True where a token (third) attends to another (fourth); None: to all before it, since padding comes last."""
    tokens: CompletionTokens


def problem_order(position: int, count: int, num_problems: int, seed: int) -> list[int]:
    """Indices of the `count` problems from `position` on in an endless series of shuffled epochs."""
    indices = []
    for place in range(position, position + count):
        epoch, offset = divmod(place, num_problems)
        indices.append(int(np.random.default_rng([seed, epoch]).permutation(num_problems)[offset]))
    return indices


def make_rows(sequences: Sequence[ScoredSequence], shared_row_tokens: int) -> list[Row]:
    """Rows of up to `shared_row_tokens` tokens that completions of one prompt share; a longer completion has a row of its own."""
    rows = []
    ordered = sorted(sequences, key=lambda one: (one.prompt_ids, -len(one.completion_ids)))
    for prompt_ids, group in itertools.groupby(ordered, key=lambda one: one.prompt_ids):
        chosen: list[ScoredSequence] = []
        length = len(prompt_ids)
        for one in group:
            if chosen and length + len(one.completion_ids) > shared_row_tokens:
                rows.append(Row(prompt_ids, tuple(chosen)))
                chosen, length = [], len(prompt_ids)
            chosen.append(one)
            length += len(one.completion_ids)
        rows.append(Row(prompt_ids, tuple(chosen)))
    return rows


def plan_micro_batches(sequences: Sequence[ScoredSequence], max_tokens: int, shared_row_tokens: int) -> list[list[Row]]:
    """Rows of like length together, each micro-batch within `max_tokens` padded tokens (or one row, however long)."""
    batches: list[list[Row]] = []
    for row in sorted(make_rows(sequences, shared_row_tokens), key=lambda row: row.length, reverse=True):
        if batches and batches[-1][0].length * (len(batches[-1]) + 1) <= max_tokens:
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches


def collate(rows: Sequence[Row], pad_id: int, device: torch.device | str) -> MicroBatch:
    """One micro-batch of all `rows`."""
    width = max(row.length for row in rows)
    ids, positions, segments, source = [], [], [], []
    for number, row in enumerate(rows):
        start = len(row.prompt_ids)
        row_ids, row_positions, row_segments = list(row.prompt_ids), list(range(start)), [0] * start
        for segment, one in enumerate(row.sequences, start=1):
            length = len(one.completion_ids)
            first = number * width + len(row_ids)
            source += [number * width + start - 1, *range(first, first + length - 1)]
            row_ids += one.completion_ids
            row_positions += range(start, start + length)
            row_segments += [segment] * length
        padding = width - row.length
        ids.append(row_ids + [pad_id] * padding)
        positions.append(row_positions + list(range(width - padding, width)))
        segments.append(row_segments + [-1] * padding)
    shares = any(len(row.sequences) > 1 for row in rows)
    return MicroBatch(
        input_ids=torch.tensor(ids, device=device),
        position_ids=torch.tensor(positions, device=device),
        attention_mask=_shared_prompt_mask(torch.tensor(segments, device=device)) if shares else None,
        tokens=_completion_tokens([one for row in rows for one in row.sequences], source, device),
    )


def _shared_prompt_mask(segments: torch.Tensor) -> torch.Tensor:
    """The mask of `MicroBatch` from the segment `[N, L]` of each token: 0 prompt, 1... completions, -1 padding."""
    width = segments.shape[1]
    causal = torch.ones(width, width, dtype=torch.bool, device=segments.device).tril()
    same = segments[:, :, None] == segments[:, None, :]
    is_prompt = (segments == 0)[:, None, :]
    return ((same | is_prompt) & causal)[:, None]


def _completion_tokens(sequences: Sequence[ScoredSequence], source: Sequence[int], device: torch.device | str) -> CompletionTokens:
    lengths = [len(one.completion_ids) for one in sequences]

    def per_token(values: Sequence[float]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float32, device=device).repeat_interleave(torch.tensor(lengths, device=device))

    def flat(values: Iterable[Sequence[float]]) -> torch.Tensor:
        return torch.tensor(list(itertools.chain.from_iterable(values)), dtype=torch.float32, device=device)

    return CompletionTokens(
        source=torch.tensor(source, device=device),
        targets=torch.tensor([token for one in sequences for token in one.completion_ids], device=device),
        sampler_logprobs=flat(one.sampler_logprobs for one in sequences),
        old_logprobs=flat(one.old_logprobs for one in sequences),
        ref_logprobs=None,
        weights=per_token([one.weight for one in sequences]),
        advantages=per_token([one.advantage for one in sequences]),
        temperatures=per_token([one.temperature for one in sequences]),
    )
