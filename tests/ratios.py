"""How far the log-probabilities that a sampler recorded are from a model's own."""

from collections.abc import Sequence
from typing import Any

import torch

from microcoder_core.grpo.batching import ScoredSequence, collate, plan_micro_batches
from microcoder_core.grpo.policy import token_logprobs
from microcoder_core.records import Completion


def worst_difference(
    model: Any, prompts: Sequence[Sequence[int]], groups: Sequence[Sequence[Completion]], shared_row_tokens: int = 0
) -> float:
    """Largest |model's log-probability - recorded| over all tokens."""
    rows = [
        ScoredSequence(
            prompt_ids=tuple(prompt),
            completion_ids=completion.token_ids,
            sampler_logprobs=completion.logprobs or (),
            old_logprobs=completion.logprobs or (),
            advantage=1.0,
            temperature=completion.temperature,
            weight=1.0,
        )
        for prompt, group in zip(prompts, groups, strict=True)
        for completion in group
    ]
    batches = [collate(plan, 0, "cpu") for plan in plan_micro_batches(rows, 10_000, shared_row_tokens)]
    differences = [token_logprobs(model, batch, torch.float32) - batch.tokens.sampler_logprobs for batch in batches]
    return max(float(one.abs().max()) for one in differences)
