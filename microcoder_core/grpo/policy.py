"""Log-probabilities of completion tokens under a model, at the temperature that they were sampled at, and their gradient.

The head is the widest product of a model, and its logits the largest tensor: it is applied to completion tokens alone, a few at a time,
and its gradient is taken at once, so that no more logits than those few are ever held.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn import functional

from microcoder_core.errors import InputError
from microcoder_core.grpo.batching import CompletionTokens, MicroBatch
from microcoder_core.sampling.models import base_model, computing

LOGITS_AT_ONCE = {"cpu": 1 << 23, "cuda": 1 << 27}
"""Elements: 32 MiB in float32 on a CPU. The GPU's is chosen, untested."""
_FEWEST_TOKENS = 64

Objective = Callable[[torch.Tensor, CompletionTokens], torch.Tensor]
"""From log-probabilities `[T]` with gradient and their tokens to a scalar to minimise, which adds up over parts."""


def token_logprobs(model: Any, batch: MicroBatch, dtype: torch.dtype) -> torch.Tensor:
    """Log-probability `[T]` of each completion token under softmax(logits / temperature), without gradient.

    Logits are divided by each token's own temperature before the log-softmax, for new, old and reference policy alike: at T = 1 the
    ratio of fresh samples would not be 1 (arXiv 2603.07777, pi^{T(D)}).

    Args:
        dtype: Of the matrix products.
    """
    with torch.no_grad(), computing(model, dtype, keeps_casts=False):
        hidden, head = _hidden_states(model, batch)
        parts = zip(*_parts(hidden, batch.tokens, head), strict=True)
        return torch.cat([_logprobs(part, tokens, head) for part, tokens in parts])


def backward(model: Any, batch: MicroBatch, objective: Objective, dtype: torch.dtype) -> None:
    """Adds the gradient of `objective` over a micro-batch to the weights.

    Args:
        dtype: Of the matrix products.
    """
    with computing(model, dtype, keeps_casts=False):
        hidden, head = _hidden_states(model, batch)
    gradients = []
    for part, tokens in zip(*_parts(hidden.detach(), batch.tokens, head), strict=True):
        leaf = part.requires_grad_()
        with computing(model, dtype, keeps_casts=False):
            logprobs = _logprobs(leaf, tokens, head)
        objective(logprobs, tokens).backward()  # type: ignore[no-untyped-call]
        assert leaf.grad is not None
        gradients.append(leaf.grad)
    hidden.backward(torch.cat(gradients))  # type: ignore[no-untyped-call]


def check_head(model: Any) -> None:
    """Raises InputError where a model's logits are more than its head applied to its last hidden states (scaled, capped)."""
    base = base_model(model)
    token_ids = torch.arange(1, 5, device=base.device)[None]
    with torch.no_grad():
        logits = base(input_ids=token_ids, use_cache=False).logits
        with _headless(base) as head:
            ours = head(base(input_ids=token_ids, use_cache=False).logits)
    if not torch.allclose(logits.float(), ours.float(), rtol=1e-2, atol=1e-2):
        raise InputError(f"model: {type(base).__name__} changes its logits after the head, which the trainer does not know; give another")


def can_share_rows(model: Any) -> bool:
    """Whether a mask of our own may say which tokens attend to which: plain attention over everything before, as torch computes it."""
    config = base_model(model).config.get_text_config()
    layers = set(getattr(config, "layer_types", None) or ())
    return config._attn_implementation == "sdpa" and not getattr(config, "sliding_window", None) and layers <= {"full_attention"}


def reference_of(model: Any) -> Callable[[], contextlib.AbstractContextManager[Any]]:
    """What gives the model as it is now, whenever it is asked: adapters are switched off, any other model is copied."""
    if hasattr(model, "disable_adapter"):

        @contextlib.contextmanager
        def without_adapters() -> Iterator[Any]:
            with model.disable_adapter():
                yield model

        return without_adapters
    frozen = copy.deepcopy(model).eval().requires_grad_(False)
    return lambda: contextlib.nullcontext(frozen)


def _hidden_states(model: Any, batch: MicroBatch) -> tuple[torch.Tensor, Any]:
    """The hidden states `[T, H]` that predict the completion tokens, and the head."""
    with _headless(base_model(model)) as head:
        output = model(
            input_ids=batch.input_ids, position_ids=batch.position_ids, attention_mask=batch.attention_mask, use_cache=False
        ).logits
    return output.flatten(0, 1)[batch.tokens.source], head


@contextlib.contextmanager
def _headless(base: Any) -> Iterator[Any]:
    """Inside, the model gives its last hidden states as logits; the value is its head."""
    head = base.get_output_embeddings()
    base.set_output_embeddings(_NoHead())
    try:
        yield head
    finally:
        base.set_output_embeddings(head)


class _NoHead(torch.nn.Module):
    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """`hidden` itself, as a tensor of its own: FSDP cannot hook on to a view."""
        return hidden.clone()


def _parts(hidden: torch.Tensor, tokens: CompletionTokens, head: Any) -> tuple[tuple[torch.Tensor, ...], Iterator[CompletionTokens]]:
    size = max(_FEWEST_TOKENS, LOGITS_AT_ONCE[hidden.device.type] // head.weight.shape[0])
    return torch.split(hidden, size), tokens.split(size)


def _logprobs(hidden: torch.Tensor, tokens: CompletionTokens, head: Any) -> torch.Tensor:
    logits = head(hidden).float() / tokens.temperatures[:, None]
    return -functional.cross_entropy(logits, tokens.targets, reduction="none")
