"""Log-probabilities of completions under a model, at the temperature that they were sampled at."""

from __future__ import annotations

from typing import Any

import torch

from microcoder_core.grpo.batching import MicroBatch


def completion_logprobs(model: Any, batch: MicroBatch) -> torch.Tensor:
    """Log-probability `[N, C]` of each completion token under softmax(logits / temperature); whatever on padding.

    The head is applied to the completion's columns only. Logits are divided by each sequence's own temperature before the
    log-softmax, for new, old and reference policy alike: at T = 1 the ratio of fresh samples would not be 1
    (arXiv 2603.07777, pi^{T(D)}).
    """
    width = batch.completion_width
    positions = (batch.attention_mask.cumsum(dim=1) - 1).clamp(min=0)
    output = model(
        input_ids=batch.input_ids,
        attention_mask=batch.attention_mask,
        position_ids=positions,
        use_cache=False,
        logits_to_keep=width + 1,
    )
    logits = output.logits[:, :-1].float() / batch.temperatures[:, None, None]
    targets = batch.input_ids[:, -width:]
    return torch.log_softmax(logits, dim=-1).gather(2, targets[:, :, None]).squeeze(2)
