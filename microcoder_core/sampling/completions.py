"""What samplers that leave the decoding to an engine have in common with the one that does not: the completion, and its seed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from microcoder_core.errors import SamplingError
from microcoder_core.records import Completion, FinishReason

_SEED_BITS = 63
"""Engines take signed 64-bit numbers."""


def completion_of(
    tokenizer: Any,
    token_ids: Sequence[int],
    logprobs: Sequence[float],
    finish_reason: FinishReason,
    *,
    temperature: float,
    policy_version: int,
) -> Completion:
    """The completion of sampled tokens; its text leaves out the token that ended it. Greedy samples get no log-probabilities."""
    answer = token_ids[:-1] if finish_reason == "stop" else token_ids
    return Completion(
        text=tokenizer.decode(answer, skip_special_tokens=True),
        token_ids=tuple(token_ids),
        finish_reason=finish_reason,
        logprobs=tuple(logprobs) if temperature > 0 else None,
        temperature=temperature,
        policy_version=policy_version,
    )


def check_finite(logprobs: Iterable[float]) -> None:
    """Raises SamplingError where a log-probability is no number."""
    if not all(map(math.isfinite, logprobs)):
        raise SamplingError("the model's logits are not finite: its weights are damaged, or training has diverged")


def checked_finish(reason: Any, token_ids: Sequence[int], max_new_tokens: int, end_token_ids: frozenset[int]) -> FinishReason:
    """An engine's finish reason, where the tokens agree with it.

    Raises:
        SamplingError: It is none of `stop` and `length`, or the tokens say otherwise: no end token at the end, too few tokens.
    """
    if reason == "stop" and token_ids and token_ids[-1] in end_token_ids:
        return "stop"
    if reason == "length" and len(token_ids) == max_new_tokens:
        return "length"
    raise SamplingError(
        f"the engine ended a completion for {reason!r} after {len(token_ids)} of {max_new_tokens} tokens, the last {list(token_ids[-1:])}; "
        f"it must be 'stop' with one of {sorted(end_token_ids)}, or 'length' with all"
    )


def engine_seed(seed: Sequence[int], sample: int) -> int:
    """The seed that an engine gets for one sample of a prompt with `seed`."""
    return int(np.random.SeedSequence([*seed, sample]).generate_state(1, np.uint64)[0]) & ((1 << _SEED_BITS) - 1)
