"""The Sampler protocol: anything that turns prompts into completions with log-probabilities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from microcoder_core.records import Completion

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
        group_size: int,
        temperature: float,
        max_new_tokens: int,
        seed: Sequence[int],
        on_finished: OnFinished | None = None,
    ) -> list[list[Completion]]:
        """`group_size` completions of each prompt.

        Args:
            prompts: Token ids; prompts may differ in length.
            temperature: Logits are divided by it; no top-p, top-k or min-p, so that recorded log-probs are those of the full
                distribution. 0 is greedy decoding, whose log-probs are left out.
            max_new_tokens: Length limit; a completion that reaches it without an end token has finish_reason `length`.
            seed: With prompt and sample index it fixes the draws of each sample, whatever else is in the batch.
            on_finished: Lets work on a completion start while others are still written.
        """
        ...
