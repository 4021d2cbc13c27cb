"""Tiny random models of the families that code models come in, with the tokenizer of the nano model."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch

from microcoder_core.nano import NANO_MODEL

_SIZES = {
    "vocab_size": 512,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,  # ten times the usual: answers far from uniform, in which an error of position or mask shows
    "bos_token_id": None,
    "eos_token_id": 1,
    "pad_token_id": 0,
}
_LATENT_ATTENTION = {
    "num_key_value_heads": 2,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "qwen2": {},
    "qwen3": {"head_dim": 16},
    "llama": {},  # DeepSeek-Coder and SmolLM2 are of this architecture too
    "starcoder2": {"attention_dropout": 0.1, "residual_dropout": 0.1, "embedding_dropout": 0.1},  # as StarCoder2's own checkpoints
    "deepseek_v2": _LATENT_ATTENTION,
    "deepseek_v3": _LATENT_ATTENTION,
}


def family_model(name: str, **changes: Any) -> Any:
    """A random model of a family, of about 50,000 parameters."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(name, **_SIZES | FAMILIES[name] | changes))


def family_folder(name: str, folder: Path) -> Path:
    """A folder with such a model and the nano model's tokenizer."""
    family_model(name).save_pretrained(folder)
    for file in (*NANO_MODEL.glob("tokenizer*"), NANO_MODEL / "prompt_template.json"):
        shutil.copy(file, folder)
    return folder
