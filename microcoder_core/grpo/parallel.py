"""Several processes that train one model: who does what, and what they add up.

Every process has all judged completions of a step and comes to the same advantages, masks and micro-batches; it samples for its own part of
the problems and runs its own part of the micro-batches. So the loss does not depend on the number of processes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeVar

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object
from torch import distributed
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor

from microcoder_core.errors import MicrocoderError
from microcoder_core.grpo.batching import Row

T = TypeVar("T")

Parallel = Literal["ddp", "fsdp"]


class Processes:
    """This process among those that a launcher (torchrun, accelerate) started together, or alone.

    Args:
        on_cpu: Use gloo, not NCCL.
    """

    def __init__(self, *, on_cpu: bool) -> None:
        self._state = PartialState(cpu=on_cpu)
        self.rank = int(self._state.process_index)
        self.count = int(self._state.num_processes)

    @property
    def is_main(self) -> bool:
        """Whether this is the one that writes files and metrics."""
        return self.rank == 0

    @property
    def device(self) -> torch.device:
        """This process's own."""
        return self._state.device  # type: ignore[no-any-return]

    def gather(self, value: T) -> list[T]:
        """Each process's value, by rank."""
        return [value] if self.count == 1 else list(gather_object([value]))

    def gather_results(self, result: T | MicrocoderError) -> list[T]:
        """Each process's result; where one of them has failed, all raise its error, so that none waits for it."""
        results = self.gather(result)
        for one in results:
            if isinstance(one, MicrocoderError):
                raise one
        return results  # type: ignore[return-value]

    def from_main(self, value: T) -> T:
        """The main process's value."""
        if self.count == 1:
            return value
        values = [value]
        broadcast_object_list(values)
        return values[0]

    def own(self, items: Sequence[T]) -> Sequence[T]:
        """This process's part of what all of them have."""
        return items[self.rank :: self.count]

    def share(self, micro_batches: Sequence[list[Row]]) -> list[list[Row]]:
        """This process's micro-batches.

        Every process has as many, since all of them together put a sharded model together; the last may be one without weight.
        """
        if not micro_batches:
            return []
        missing = -len(micro_batches) % self.count
        return list(self.own([*micro_batches, *[_without_weight(micro_batches[-1])] * missing]))

    def add_gradients(self, model: torch.nn.Module) -> None:
        """Adds up the gradients of all processes, where each has the whole model; those of a sharded one are added up already."""
        if self.count == 1 or isinstance(model, FSDPModule):
            return
        for weight in trainable(model):
            gradient = torch.zeros_like(weight) if weight.grad is None else weight.grad
            distributed.all_reduce(gradient)
            weight.grad = gradient

    @staticmethod
    def clip_gradients(model: torch.nn.Module, max_norm: float) -> float:
        """Scales the gradients down to `max_norm` where they are larger; returns their norm before."""
        norm = torch.nn.utils.clip_grad_norm_(trainable(model), max_norm)
        return float(norm.full_tensor() if isinstance(norm, DTensor) else norm)


def trainable(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    """The weights that training moves."""
    return [weight for weight in model.parameters() if weight.requires_grad]


def shard(model: Any) -> None:
    """Shares out weights, gradients and optimiser state (FSDP2): each process keeps a part, and layers are put together as they are used.

    Gradients are added up over processes, not averaged: the loss's weights already belong to the whole update.
    """
    layers = [module for module in model.modules() if type(module).__name__ in (model._no_split_modules or ())]
    for module in (*layers, model):
        fully_shard(module)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)  # gloo can do no other


@contextlib.contextmanager
def whole_weights(model: torch.nn.Module) -> Iterator[None]:
    """Inside, each process has all weights, so that it can sample by itself."""
    sharded = [module for module in model.modules() if isinstance(module, FSDPModule)]
    for module in sharded:
        module.set_reshard_after_forward(False, recurse=False)
        module.unshard()
    try:
        yield
    finally:
        for module in sharded:
            module.reshard()
            module.set_reshard_after_forward(module is not model, recurse=False)


def _without_weight(rows: Sequence[Row]) -> list[Row]:
    return [Row(row.prompt_ids, tuple(replace(one, weight=0.0, advantage=0.0) for one in row.sequences)) for row in rows]
