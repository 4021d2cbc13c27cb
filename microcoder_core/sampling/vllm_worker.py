"""What microcoder adds to a vLLM worker (`--worker-extension-cls`): weights come in, and it can be asked which it has.

The class is mixed into vLLM's own worker, so that `self` is that worker; its names must not collide with the worker's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from microcoder_core.sampling.weight_sync import EngineState, Fingerprinted, fingerprint

EXTENSION = "microcoder_core.sampling.vllm_worker.WeightReceiver"

PROCESSED_LOGPROBS = "processed_logprobs"
"""vLLM's name for log-probabilities under softmax(logits / temperature)."""

CPU_OPTIONS = ("--enforce-eager", "--no-enable-chunked-prefill")
"""Of a server on a CPU. Compiling takes minutes there and gains little; and a prompt that is computed in parts makes vLLM turn back the
generator of a request with a seed, which a CPU's cannot do, so that the engine ends."""


class WeightReceiver:
    """Methods for `collective_rpc`; each answers an `EngineState` as a mapping, and a failure is an answer, not an exception."""

    _microcoder_sync_id = ""

    def microcoder_state(self: Any) -> dict[str, Any]:
        """What it has, without fingerprints."""
        return _state(self)

    def microcoder_receive_file(self: Any, file: str, sync_id: str) -> dict[str, Any]:
        """Takes the weights of a safetensors file."""
        return _receive(self, lambda: _tensors(file), sync_id)

    def microcoder_receive(self: Any, weights: Iterable[tuple[str, torch.Tensor]], sync_id: str) -> dict[str, Any]:
        """Takes weights in place of those that it has."""
        return _receive(self, lambda: weights, sync_id)


def _receive(worker: Any, weights: Callable[[], Iterable[tuple[str, torch.Tensor]]], sync_id: str) -> dict[str, Any]:
    worker._microcoder_sync_id = ""  # until all is well, it has no weights that one could sample from
    try:
        arriving = Fingerprinted(weights())
        model = worker.model_runner.get_model()
        with torch.no_grad():
            worker.reload_weights(weights_iterator=_with_tied(arriving, _tied_names(model)))
        live = {name: fingerprint(weight) for name, weight in model.named_parameters(remove_duplicate=False)}
    except Exception as error:  # what a damaged file, and what vLLM raises, differs from case to case
        return _state(worker, error=f"{type(error).__name__}: {error}")
    worker._microcoder_sync_id = sync_id
    return _state(worker, arrived=arriving.seen, live=live)


def _state(worker: Any, **more: Any) -> dict[str, Any]:
    config = worker.vllm_config.model_config
    state = EngineState(
        sync_id=worker._microcoder_sync_id,
        dtype=str(config.dtype).removeprefix("torch."),
        logprobs_mode=str(config.logprobs_mode),
        max_positions=config.max_model_len,
        vocabulary=config.get_vocab_size(),
        **more,
    )
    return state.model_dump(mode="json")


def _tied_names(model: torch.nn.Module) -> list[list[str]]:
    """The names of each parameter that has several."""
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return [group for group in names.values() if len(group) > 1]


def _with_tied(weights: Iterable[tuple[str, torch.Tensor]], tied: Sequence[Sequence[str]]) -> Iterator[tuple[str, torch.Tensor]]:
    """The weights, then a tied one under those of its names by which it did not come.

    vLLM makes ready what it loads by name: on a CPU, an output layer that is not named goes on with the old embedding.
    """
    kept: dict[str, torch.Tensor] = {}
    several = {name for names in tied for name in names}
    for name, weight in weights:
        if name in several:
            kept[name] = weight
        yield name, weight
    for names in tied:
        came = [kept[name] for name in names if name in kept]
        for name in names:
            if came and name not in kept:
                yield name, came[0]


def _tensors(file: str) -> list[tuple[str, torch.Tensor]]:
    from safetensors.torch import load_file

    return list(load_file(file).items())
