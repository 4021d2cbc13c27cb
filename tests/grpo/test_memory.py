"""The memory estimate, held against tensors that are really kept."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen3Config, Qwen3ForCausalLM

from microcoder_core.errors import InputError
from microcoder_core.grpo.config import LoraConfig
from microcoder_core.grpo.lora import add_adapters
from microcoder_core.grpo.memory import GIB, MemoryEstimate, activation_bytes, check_memory, estimate_memory, memory_limit
from microcoder_core.stages.presets import load_train_config
from microcoder_core.stages.train import say_memory

SIZES = {"hidden_size": 64, "intermediate_size": 176, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 128}
MODELS = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(num_hidden_layers=8, **SIZES)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(num_hidden_layers=8, head_dim=16, **SIZES)),
}
QWEN = {"vocab_size": 151_936, "num_key_value_heads": 2, "max_position_embeddings": 32_768, "tie_word_embeddings": True}
CODER_1_5B = Qwen2Config(hidden_size=1536, intermediate_size=8960, num_hidden_layers=28, num_attention_heads=12, **QWEN)
CODER_3B = Qwen2Config(hidden_size=2048, intermediate_size=11_008, num_hidden_layers=36, num_attention_heads=16, **QWEN)
LARGE = Qwen3Config(hidden_size=4096, intermediate_size=12_288, num_hidden_layers=36, vocab_size=151_936, tie_word_embeddings=False)


def kept_bytes(model: Any, tokens: int) -> int:
    """Bytes of the tensors that a forward pass keeps for the backward pass, weights left out."""
    weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        hidden = model.model(input_ids=torch.randint(0, 128, (1, tokens)), use_cache=False).last_hidden_state
    assert hidden.requires_grad
    return sum(kept.values())


@pytest.mark.parametrize("family", MODELS)
def test_activations_are_within_a_quarter_of_what_is_kept(family: str) -> None:
    model = MODELS[family]().train()
    assert activation_bytes(model.config, 512, 4, checkpointing=False) == pytest.approx(kept_bytes(model, 512), rel=0.25)


def estimate(model_config: Any, *overrides: str, preset: str = "microcoder", processes: int = 1) -> MemoryEstimate:
    config = load_train_config(["microcoder", preset], overrides)
    return estimate_memory(model_config, config, processes=processes, dtype=torch.bfloat16, gpu_bytes=80 * GIB)


def test_weights_and_optimiser_are_sixteen_bytes_a_weight() -> None:
    model = MODELS["qwen3"]()
    count = sum(weight.numel() for weight in model.parameters())
    one = estimate(model.config)
    assert (one.weights, one.gradients, one.optimizer, one.casts) == (4 * count, 4 * count, 8 * count, 2 * count)
    assert estimate(model.config, "loss.kl_coef=0.1").reference == 4 * count
    assert estimate(model.config, "parallel=fsdp", processes=4).optimizer == 2 * count


def test_vllm_takes_its_share_and_a_server_nothing() -> None:
    model = MODELS["qwen3"]()
    assert estimate(model.config).sampling > 0
    here = estimate(model.config, "sampler.kind=vllm", "sampler.gpu_memory_utilization=0.25")
    assert (here.sampling, here.engine) == (0, 20 * GIB)
    assert estimate(model.config, "sampler.kind=vllm_server", "sampler.url=http://x:1").engine == 0


def test_adapters_are_all_that_moves() -> None:
    model = MODELS["llama"]()
    adapted = add_adapters(MODELS["llama"](), LoraConfig(rank=8))
    moving = sum(weight.numel() for weight in adapted.parameters() if weight.requires_grad)
    one = estimate(model.config, "lora.rank=8")
    assert one.optimizer == 8 * moving
    assert one.weights == 2 * sum(weight.numel() for weight in model.parameters()) + 4 * moving


@pytest.mark.parametrize(
    ("model_config", "preset"), [(CODER_1_5B, "gpu24gb"), (CODER_3B, "gpu24gb-lora")], ids=["1.5B, every weight", "3B, adapters"]
)
def test_the_presets_for_a_24_gb_card_fit(model_config: Any, preset: str) -> None:
    check_memory(estimate(model_config, preset=preset), 23.5 * GIB)
    with pytest.raises(InputError, match=r"memory: the training needs about \d+.* lower optimizer.micro_batch_tokens"):
        check_memory(estimate(LARGE, preset=preset), 23.5 * GIB)


QWEN3 = {"vocab_size": 151_936, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 40_960}
HEADLINES = {
    "qwen3-1.7b": (1, Qwen3Config(hidden_size=2048, intermediate_size=6144, num_hidden_layers=28, num_attention_heads=16, **QWEN3)),
    "qwen3-4b": (8, Qwen3Config(hidden_size=2560, intermediate_size=9728, num_hidden_layers=36, num_attention_heads=32, **QWEN3)),
    "deepseek-8b": (8, Qwen3Config(hidden_size=4096, intermediate_size=12_288, num_hidden_layers=36, num_attention_heads=32, **QWEN3)),
}
"""Preset -> 80 GB cards, shape of the model."""


@pytest.mark.parametrize("preset", HEADLINES)
def test_the_headline_presets_fit_where_they_say(preset: str) -> None:
    cards, model_config = HEADLINES[preset]
    check_memory(estimate(model_config, preset=preset, processes=cards), 79 * GIB)


@pytest.mark.parametrize(
    ("file", "text", "limit"), [("memory.max", "1048576\n", 2**20), ("memory.max", "max\n", math.inf), ("x", "", math.inf)]
)
def test_a_control_group_s_limit_counts(file: str, text: str, limit: float, tmp_path: Path) -> None:
    (tmp_path / file).write_text(text)
    assert memory_limit(tmp_path) == limit


def test_what_cannot_fit_is_refused_before_the_weights_are_loaded(tmp_path: Path) -> None:
    LARGE.save_pretrained(tmp_path)
    with pytest.raises(InputError, match=r"there are \d+\.\d GiB.*memory_check=false"):
        say_memory(str(tmp_path), load_train_config(["microcoder"]))
    say_memory(str(tmp_path), load_train_config(["microcoder"], ["memory_check=false"]))
