"""Adapters on a model, instead of training its own weights."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from microcoder_core.errors import InputError
from microcoder_core.grpo.config import LoraConfig


def add_adapters(model: Any, config: LoraConfig) -> Any:
    """`model` with adapters that do nothing yet, in float32; its own weights are frozen.

    Raises:
        InputError: No layer has one of the names.
    """
    from peft import LoraConfig as PeftConfig
    from peft import get_peft_model

    names = config.target_modules or _linear_layers(model)
    settings = PeftConfig(r=config.rank, lora_alpha=config.alpha, lora_dropout=0.0, target_modules=list(names), task_type="CAUSAL_LM")
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated")  # of peft's making
            warnings.filterwarnings("ignore", r"The following \w+ keys did not match")
            return get_peft_model(model, settings, autocast_adapter_dtype=True)
    except ValueError as error:
        raise InputError(f"lora.target_modules: {' '.join(str(error).split())[:200]}") from None


def _linear_layers(model: Any) -> list[str]:
    """Full names of the linear layers but the head."""
    head = model.get_output_embeddings()
    return [name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear) and module is not head]
