"""The weights of a model that may be sharded, or may carry adapters: read as a whole, kept for a resume, put back."""

from __future__ import annotations

import collections
import copy
import itertools
from collections.abc import Iterator, Mapping
from typing import Any, cast

import torch
from accelerate import init_empty_weights
from torch import distributed
from torch.distributed.tensor import DTensor, distribute_tensor

from microcoder_core.errors import InputError
from microcoder_core.grpo.parallel import Processes
from microcoder_core.sampling.models import base_model

Moments = dict[str, dict[str, Any]]
"""What the optimiser keeps of each weight, tensors and numbers, by the weight's name."""


def full_weights(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Name and whole tensor of each weight as `from_pretrained` knows it: shards put together, adapters merged in.

    With several processes all of them must run through it together.
    """
    base = base_model(model)
    adapters: dict[str, list[Any]] = collections.defaultdict(list)
    for path, module in base.named_modules():
        if hasattr(module, "get_delta_weight"):
            adapters[path.replace(".base_layer", "")].append(module)
    for name, weight in _stored(base):
        owner, _, last = name.rpartition(".")
        layer = owner.replace(".base_layer", "")
        if not any(name.startswith(f"{path}.lora_") or owner.startswith(f"{path}.base_layer.lora_") for path in adapters):
            whole = _full(_dequantized(base.get_submodule(owner)) if last == "weight" else weight)
            adapter = next((one for one in adapters[layer] if getattr(one, "parameter_name", "weight") == last), None)
            yield f"{layer}.{last}", whole if adapter is None else whole.float() + _delta(adapter)


def _stored(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters and persistent buffers, tied ones by each of their names; not what a quantised layer adds to the state dict."""
    known = model.state_dict().keys()
    tensors = itertools.chain(model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False))
    return ((name, tensor) for name, tensor in tensors if name in known)


def plain_model(model: Any, dtype: torch.dtype) -> Any:
    """A copy on the CPU as `from_pretrained` would load it: whole, adapters merged in, not quantised, of one dtype.

    With several processes all of them must call it together.
    """
    base = base_model(model)
    config = copy.deepcopy(base.config)
    config.dtype = dtype
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    with init_empty_weights(include_buffers=False):
        plain = type(base)(config)
    plain.load_state_dict({name: weight.detach().to("cpu", dtype) for name, weight in full_weights(model)}, assign=True)
    plain.tie_weights()
    plain.generation_config = base.generation_config
    return plain


def training_state(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> tuple[dict[str, torch.Tensor], Moments]:
    """What a resumed run needs of them: the weights that training moves, and the optimiser's tensors, whole and on the CPU.

    With several processes all of them must call it together; all get it.
    """
    weights, moments = {}, {}
    for name, weight in _moving(model):
        weights[name] = _full(weight.detach()).cpu()
        kept = optimizer.state.get(weight, {})
        moments[name] = {key: _full(one).cpu() if isinstance(one, torch.Tensor) else one for key, one in kept.items()}
    return weights, moments


def load_training_state(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    processes: Processes,
    weights: Mapping[str, torch.Tensor],
    moments: Moments,
) -> None:
    """Puts back what `training_state` gave; only the main process's is looked at, and need be there.

    Raises:
        InputError: A state of other weights.
    """
    complaint = None
    if processes.is_main:
        known = {name: weight.shape for name, weight in _moving(model)}
        if known != {name: weight.shape for name, weight in weights.items()}:
            complaint = "resume: the checkpoint holds other weights than the model; delete the work folder to start anew"
    if complaint := processes.from_main(complaint):
        raise InputError(complaint)
    layout = processes.from_main({name: {key: _layout(one) for key, one in kept.items()} for name, kept in moments.items()})
    for name, weight in _moving(model):
        weight.data.copy_(_like(weights.get(name), weight, processes))
        kept = {key: _restored(moments.get(name, {}).get(key), how, weight, processes) for key, how in layout[name].items()}
        if kept:
            optimizer.state[weight] = kept


def _layout(value: Any) -> Any:
    """A number (AdamW's step count is one, as a tensor that stays on the CPU), else the shape and dtype of a tensor."""
    return (value.shape, value.dtype) if isinstance(value, torch.Tensor) and value.dim() else value


def _restored(value: Any, layout: Any, weight: torch.Tensor, processes: Processes) -> Any:
    if not isinstance(layout, tuple):
        return layout
    return _like(torch.empty(layout[0], dtype=layout[1]) if value is None else value, weight, processes)


def _moving(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Parameter]]:
    return ((name, weight) for name, weight in model.named_parameters() if weight.requires_grad)


def _full(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _like(value: torch.Tensor | None, weight: torch.Tensor, processes: Processes) -> torch.Tensor:
    """The main process's `value`, laid out over devices as `weight` is."""
    if value is None:
        value = torch.empty(weight.shape, dtype=weight.dtype)
    value = value.to(processes.device)
    if processes.count > 1:
        distributed.broadcast(value, src=0)
    return distribute_tensor(value, weight.device_mesh, weight.placements) if isinstance(weight, DTensor) else value


def _dequantized(layer: Any) -> torch.Tensor:
    if hasattr(layer.weight, "quant_state"):
        from peft.utils.integrations import dequantize_module_weight

        return cast(torch.Tensor, dequantize_module_weight(layer))
    return cast(torch.Tensor, layer.weight)


def _delta(layer: Any) -> torch.Tensor:
    """What an adapter adds to the weight of its layer, float32."""
    (adapter,) = layer.active_adapters
    if hasattr(layer, "parameter_name"):  # experts that share one tensor
        return cast(torch.Tensor, layer.get_delta_weight(adapter).float())
    down, up = _full(layer.lora_A[adapter].weight), _full(layer.lora_B[adapter].weight)
    return cast(torch.Tensor, layer.scaling[adapter] * (up.float() @ down.float()))
