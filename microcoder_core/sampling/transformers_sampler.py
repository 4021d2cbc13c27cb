"""Sampling with transformers, for laptops, tests and small models (vLLM serves large ones).

One prefill a prompt, its KV cache repeated for the group; finished rows leave the batch; log-probs are taken from the very logits
that a token was drawn from, so that the trainer needs no second pass.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from microcoder_core.records import Completion
from microcoder_core.sampling.base import OnFinished
from microcoder_core.sampling.completions import check_finite, completion_of
from microcoder_core.sampling.models import base_model, computing

# Shape legend: B rows in the batch, P padded prompt length, V vocabulary.

_COMPACT_WHEN_FINISHED = 0.25
"""Rows are dropped from the batch once this share of it has finished: copying the cache costs about one decoding step."""


class TransformersSampler:
    """Samples from a causal language model held in this process.

    Args:
        model: The model itself, not a copy: what the trainer updates is what samples next.
        tokenizer: Gives padding and end tokens and the text.
        max_rows: Rows decoded at once; more are done in turn.
        compute_dtype: Of the matrix products, where that is not the weights' own (a model that is trained).
    """

    def __init__(self, model: Any, tokenizer: Any, *, max_rows: int = 256, compute_dtype: torch.dtype | None = None) -> None:
        self.model = model
        self.compute_dtype = compute_dtype or model.dtype
        self.tokenizer = tokenizer
        self.max_rows = max_rows
        self._policy_version = 0
        self.end_token_ids = end_token_ids(model, tokenizer)
        # transformers renamed the argument in the course of version 5.
        self._cache_name = "cache" if "cache" in inspect.signature(base_model(model).forward).parameters else "past_key_values"

    @property
    def shares_model(self) -> bool:
        """See `TrainedSampler.shares_model`."""
        return True

    def update_weights(self, weights: Iterable[tuple[str, torch.Tensor]], policy_version: int) -> None:
        """See `TrainedSampler.update_weights`; the model is the trainer's own, so that no weight is asked for."""
        self._policy_version = policy_version

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        seeds: Sequence[Sequence[int]],
        group_size: int,
        temperature: float,
        max_new_tokens: int,
        on_finished: OnFinished | None = None,
    ) -> list[list[Completion]]:
        """See `Sampler.sample`."""
        was_training = self.model.training
        self.model.eval()
        try:
            with torch.no_grad(), computing(self.model, self.compute_dtype):
                completions: list[list[Completion]] = []
                for first, chunk in self._chunks(prompts, group_size):
                    rows = [
                        _Row(first + prompt, sample, _uniforms(seeds[first + prompt], sample, max_new_tokens))
                        for prompt in range(len(chunk))
                        for sample in range(group_size)
                    ]
                    self._decode(chunk, group_size, rows, temperature, max_new_tokens, on_finished)
                    done = [self._completion(row, temperature) for row in rows]
                    completions += [done[start : start + group_size] for start in range(0, len(done), group_size)]
                return completions
        finally:
            self.model.train(was_training)

    def _chunks(self, prompts: Sequence[Sequence[int]], group_size: int) -> Iterator[tuple[int, Sequence[Sequence[int]]]]:
        size = max(1, self.max_rows // group_size)
        for first in range(0, len(prompts), size):
            yield first, prompts[first : first + size]

    def _decode(
        self,
        prompts: Sequence[Sequence[int]],
        group_size: int,
        rows: list[_Row],
        temperature: float,
        max_new_tokens: int,
        on_finished: OnFinished | None,
    ) -> None:
        logits, cache, mask = self._prefill(prompts, group_size)
        live = list(rows)
        for _ in range(max_new_tokens):
            tokens, logprobs = self._next_tokens(logits, temperature, live)
            drawn = logprobs.tolist()
            check_finite(drawn)
            for row, token, logprob in zip(live, tokens.tolist(), drawn, strict=True):
                if not row.finished:
                    row.append(token, logprob, token in self.end_token_ids, len(row.token_ids) + 1 == max_new_tokens)
                    if row.finished and on_finished:
                        on_finished(row.prompt, row.sample, self._completion(row, temperature))
            unfinished = [index for index, row in enumerate(live) if not row.finished]
            if not unfinished:
                return
            if len(unfinished) <= len(live) * (1 - _COMPACT_WHEN_FINISHED):
                kept = torch.tensor(unfinished, device=mask.device)
                cache.batch_select_indices(kept)
                mask, tokens, live = mask[kept], tokens[kept], [live[index] for index in unfinished]
            mask = torch.cat([mask, mask.new_ones(len(live), 1)], dim=1)
            logits = self._forward(tokens[:, None], mask, cache)

    def _prefill(self, prompts: Sequence[Sequence[int]], group_size: int) -> tuple[torch.Tensor, Any, torch.Tensor]:
        """Logits `[B, V]` after each prompt, the cache, the attention mask `[B, P]`, each prompt repeated for its group."""
        from transformers import DynamicCache

        width = max(len(prompt) for prompt in prompts)
        device = next(self.model.parameters()).device
        pad = self.tokenizer.pad_token_id or 0
        token_ids = torch.tensor([[pad] * (width - len(prompt)) + list(prompt) for prompt in prompts], device=device)
        mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=device)
        cache = DynamicCache(config=self.model.config)
        logits = self._forward(token_ids, mask, cache)
        cache.batch_repeat_interleave(group_size)
        return logits.repeat_interleave(group_size, dim=0), cache, mask.repeat_interleave(group_size, dim=0)

    def _next_tokens(self, logits: torch.Tensor, temperature: float, live: Sequence[_Row]) -> tuple[torch.Tensor, torch.Tensor]:
        """See `_draw`."""
        return _draw(logits, temperature, [row.next_uniform for row in live])

    def _forward(self, token_ids: torch.Tensor, mask: torch.Tensor, cache: Any) -> torch.Tensor:
        positions = (mask.cumsum(dim=1) - 1).clamp(min=0)[:, -token_ids.shape[1] :]
        output = self.model(
            input_ids=token_ids, attention_mask=mask, position_ids=positions, use_cache=True, logits_to_keep=1, **{self._cache_name: cache}
        )
        return output.logits[:, -1].float()  # type: ignore[no-any-return]

    def _completion(self, row: _Row, temperature: float) -> Completion:
        return completion_of(
            self.tokenizer,
            row.token_ids,
            row.logprobs,
            row.finish_reason,
            temperature=temperature,
            policy_version=self._policy_version,
        )


@dataclass(slots=True)
class _Row:
    """One completion while it is written."""

    prompt: int
    sample: int
    uniforms: np.ndarray
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish_reason: Any = "length"
    finished: bool = False

    @property
    def next_uniform(self) -> float:
        """The number in 0..1 that the next token is drawn with; a finished row's last one again."""
        return float(self.uniforms[min(len(self.token_ids), len(self.uniforms) - 1)])

    def append(self, token: int, logprob: float, is_end: bool, at_limit: bool) -> None:
        self.token_ids.append(token)
        self.logprobs.append(logprob)
        self.finish_reason = "stop" if is_end else "length"
        self.finished = is_end or at_limit


def _uniforms(seed: Sequence[int], sample: int, count: int) -> np.ndarray:
    return np.random.default_rng([*seed, sample]).random(count)


def _draw(logits: torch.Tensor, temperature: float, uniforms: Sequence[float]) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens `[B]` drawn from logits `[B, V]`, the likeliest at 0, and their log-probabilities `[B]` under softmax(logits / temperature).

    Draws by inverting the cumulative distribution at the row's own uniform number, in float64: a row's draws then do not depend on
    its neighbours, and a vocabulary of 150,000 loses no tail to rounding.
    """
    if temperature == 0:
        tokens = logits.argmax(dim=-1)
        return tokens, torch.log_softmax(logits, dim=-1).gather(1, tokens[:, None]).squeeze(1)
    logprobs = torch.log_softmax(logits / temperature, dim=-1)
    cumulative = logprobs.double().exp().cumsum(dim=-1)
    thresholds = torch.tensor(uniforms, dtype=torch.float64, device=logits.device)[:, None] * cumulative[:, -1:]
    tokens = torch.searchsorted(cumulative, thresholds, right=True).squeeze(1).clamp(max=logits.shape[-1] - 1)
    return tokens, logprobs.gather(1, tokens[:, None]).squeeze(1)


def end_token_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """Every token that ends a response: those of the generation configuration, and the tokenizer's own."""
    configured = getattr(model.generation_config, "eos_token_id", None)
    ids = configured if isinstance(configured, list) else [configured]
    return frozenset(token for token in (*ids, tokenizer.eos_token_id) if token is not None)
