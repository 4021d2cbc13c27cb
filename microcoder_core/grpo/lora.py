"""Adapters on a model, instead of training its own weights."""

from __future__ import annotations

import warnings
from typing import Any

from microcoder_core.errors import InputError
from microcoder_core.grpo.config import LoraConfig


def add_adapters(model: Any, config: LoraConfig) -> Any:
    """`model` with adapters that do nothing yet, in float32; its own weights are frozen.

    Raises:
        InputError: No layer has one of the names.
    """
    from peft import LoraConfig as PeftConfig
    from peft import get_peft_model

    names = list(config.target_modules) or "all-linear"
    settings = PeftConfig(r=config.rank, lora_alpha=config.alpha, lora_dropout=0.0, target_modules=names, task_type="CAUSAL_LM")
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated")  # of peft's making
            return get_peft_model(model, settings, autocast_adapter_dtype=True)
    except ValueError as error:
        raise InputError(f"lora.target_modules: {' '.join(str(error).split())[:200]}") from None
