"""The Sampler protocol: anything that turns prompts into completions with log-probabilities."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

from microcoder_core.records import Completion

if TYPE_CHECKING:
    import torch

Dtype = Literal["auto", "float32", "bfloat16"]
"""Of the computation; `auto` is bfloat16 on a GPU and float32 on a CPU, where bfloat16 is slow."""

OnFinished = Callable[[int, int, Completion], None]
"""Called with prompt index, sample index and completion as soon as that completion ends, in no set order."""


class Sampler(Protocol):
    """Writes completions."""

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
        """`group_size` completions of each prompt.

        Args:
            prompts: Token ids; prompts may differ in length.
            seeds: One a prompt, of whole numbers. With the sample's index it fixes the draws of each sample, whatever else is in the
                batch and whichever process samples it.
            temperature: Logits are divided by it; no top-p, top-k or min-p, so that recorded log-probs are those of the full
                distribution. 0 is greedy decoding, whose log-probs are left out.
            max_new_tokens: Length limit; a completion that reaches it without an end token has finish_reason `length`.
            on_finished: Lets work on a completion start while others are still written.
        """
        ...


class TrainedSampler(Sampler, Protocol):
    """A sampler that follows the weights of a model in training."""

    @property
    def shares_model(self) -> bool:
        """Whether it samples from the trained model itself, so that its log-probabilities are the trainer's own."""
        ...

    def update_weights(self, weights: Iterable[tuple[str, torch.Tensor]], policy_version: int) -> None:
        """From now on samples from these weights.

        Args:
            weights: Name and tensor of each weight of the whole model, by the names of its state dict; computed as they are asked for. A
                sampler that shares the model asks for none. With several processes either all of them ask for all, or none does.
            policy_version: Optimiser steps that the weights have seen; goes into each completion.

        Raises:
            SamplingError: The weights did not arrive, or not within the deadline.
        """
        ...


def prompt_seeds(seed: Sequence[int], count: int) -> list[tuple[int, ...]]:
    """A seed for each of `count` prompts."""
    return [(*seed, prompt) for prompt in range(count)]
