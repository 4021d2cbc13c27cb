"""How much memory a training needs, by part, before any weight is loaded.

The parts of weights and optimiser are exact. Activations are those of a decoder layer with gated feed-forward and fused attention, as
transformers writes it: within a quarter of what such models keep (tests/grpo/test_memory.py measures it).
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import init_empty_weights

from microcoder_core.errors import InputError
from microcoder_core.grpo.config import TrainConfig
from microcoder_core.grpo.policy import LOGITS_AT_ONCE
from microcoder_core.sampling.config import SamplerConfig

GIB = 1 << 30
ASSUMED_PROMPT_TOKENS = 1024
_FLOAT32 = 4
_NF4 = 0.53
"""Bytes a weight: 4 bits, and a scale for each 64, itself in 8 bits."""
_MOMENTS = {"adamw": 8, "adamw_8bit": 2}
"""Bytes a moving weight."""
_LOGIT_COPIES = 4
"""Logits as they come, in float32, divided by T, and their gradient."""
_CUDA_CONTEXT = 1.0 * GIB
_FRAGMENTS = 0.05
"""Share of the allocator's loss. Chosen."""


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes of one process, by part; an update and sampling are not at the same time."""

    weights: float
    gradients: float
    optimizer: float
    reference: float
    casts: float
    """Weights in the computation's dtype, which the backward pass of an update needs."""
    activations: float
    logits: float
    sampling: float
    """By transformers: key-value cache, and whole weights where they are sharded or cast."""
    engine: float
    """Of vLLM in this process, with its own weights and cache."""
    other: float

    @property
    def total(self) -> float:
        """At the worst moment."""
        always = self.weights + self.optimizer + self.reference + self.engine + self.other
        return always + max(self.gradients + self.casts + self.activations + self.logits, self.sampling)

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {size / GIB:.1f}" for name, size in asdict(self).items() if size >= 0.05 * GIB)
        return f"about {self.total / GIB:.1f} GiB ({parts})"


def estimate_memory(
    model_config: Any, config: TrainConfig, *, processes: int, dtype: torch.dtype, gpu_bytes: float | None
) -> MemoryEstimate:
    """The memory of one process.

    Args:
        model_config: transformers' configuration of the model.
        processes: That train together.
        dtype: Of the computation.
        gpu_bytes: All memory of the GPU; None on a CPU.
    """
    sizes = _sizes(model_config, config)
    width = dtype.itemsize
    parts = processes if config.parallel == "fsdp" else 1
    stored = sizes.linear * _NF4 + (sizes.all - sizes.linear) * width if config.lora and config.lora.quantize else sizes.all * width
    frozen = stored if config.lora else 0.0
    full = 0 if config.lora else sizes.all
    casts = width * full if width < _FLOAT32 else 0.0
    whole = frozen + _FLOAT32 * sizes.moving if parts > 1 else 0.0
    tokens = max(config.optimizer.micro_batch_tokens, _longest(model_config, config))
    base = MemoryEstimate(
        weights=(frozen + _FLOAT32 * sizes.moving) / parts,
        gradients=_FLOAT32 * sizes.moving / parts,
        optimizer=_MOMENTS[config.optimizer.kind] * sizes.moving / parts,
        reference=_FLOAT32 * full / parts if config.loss.kl_coef > 0 else 0.0,
        casts=casts / model_config.num_hidden_layers if config.gradient_checkpointing else casts,
        activations=activation_bytes(model_config, tokens, width, checkpointing=config.gradient_checkpointing),
        logits=_LOGIT_COPIES * _FLOAT32 * LOGITS_AT_ONCE["cuda" if gpu_bytes else "cpu"],
        sampling=_kv_cache(model_config, config, width) + casts + whole if config.sampler.kind == "transformers" else 0.0,
        engine=_engine(config.sampler, sizes.all * width, gpu_bytes),
        other=_CUDA_CONTEXT if gpu_bytes else 0.0,
    )
    return MemoryEstimate(**{**asdict(base), "other": base.other + _FRAGMENTS * base.total})


def activation_bytes(model_config: Any, tokens: int, width: int, *, checkpointing: bool) -> float:
    """What the backward pass of a micro-batch needs from the forward pass."""
    hidden, layers = model_config.hidden_size, model_config.num_hidden_layers
    heads = model_config.num_attention_heads
    head_dim = getattr(model_config, "head_dim", None) or hidden // heads
    queries, keys = heads * head_dim, (getattr(model_config, "num_key_value_heads", None) or heads) * head_dim
    residual = 4 * _FLOAT32 * hidden  # in and out of two norms
    products = width * (2 * hidden + 3 * queries + 4 * keys + 4 * model_config.intermediate_size)
    layer = residual + products
    kept = layers * _FLOAT32 * hidden + layer if checkpointing else layers * layer
    return float(tokens * (kept + 2 * _FLOAT32 * hidden))


def check_memory(estimate: MemoryEstimate, available: float) -> None:
    """Raises InputError where a training cannot fit into `available` bytes."""
    if estimate.total > available:
        raise InputError(
            f"memory: the training needs {estimate}, and there are {available / GIB:.1f} GiB; lower optimizer.micro_batch_tokens, "
            "rollout.max_new_tokens or the sampler's rows, set gradient_checkpointing=true, lora.rank=32, or parallel=fsdp on more "
            "processes; memory_check=false tries it all the same"
        )


def available_memory() -> float:
    """Bytes of this process's GPU that are free; else of the machine's memory, within the limit of its control group."""
    if torch.cuda.is_available():
        return float(torch.cuda.mem_get_info()[0])
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    free = next(float(line.split()[1]) for line in lines if line.startswith("MemAvailable")) * 1024
    return min(free, memory_limit(Path("/sys/fs/cgroup")))


def memory_limit(root: Path) -> float:
    """Bytes that the control group mounted at `root` grants (version 2, then 1); infinite where it sets no limit."""
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            return float((root / name).read_text())
    return math.inf


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Numbers of weights."""

    all: int
    linear: int
    """In linear layers but the head."""
    moving: int


def _sizes(model_config: Any, config: TrainConfig) -> _Sizes:
    from transformers import AutoModelForCausalLM

    with init_empty_weights():
        model = AutoModelForCausalLM.from_config(model_config)
    model.tie_weights()
    head = model.get_output_embeddings()
    layers = {name: one for name, one in model.named_modules() if isinstance(one, torch.nn.Linear) and one is not head}
    total = sum(weight.numel() for weight in model.parameters())
    linear = sum(one.weight.numel() for one in layers.values())
    if config.lora is None:
        return _Sizes(total, linear, total)
    wanted = config.lora.target_modules
    adapted = [one for name, one in layers.items() if not wanted or name.rpartition(".")[2] in wanted]
    return _Sizes(total, linear, config.lora.rank * sum(one.in_features + one.out_features for one in adapted))


def _longest(model_config: Any, config: TrainConfig) -> int:
    longest = ASSUMED_PROMPT_TOKENS + config.rollout.max_new_tokens
    return min(longest, getattr(model_config, "max_position_embeddings", None) or longest)


def _engine(config: SamplerConfig, weights: float, gpu_bytes: float | None) -> float:
    if config.kind != "vllm":
        return 0.0
    return config.gpu_memory_utilization * gpu_bytes if gpu_bytes else weights + config.cpu_cache_gib * GIB


def _kv_cache(model_config: Any, config: TrainConfig, width: int) -> float:
    """Of the transformers sampler, at the worst: every row as long as it may become."""
    heads = model_config.num_attention_heads
    head_dim = getattr(model_config, "head_dim", None) or model_config.hidden_size // heads
    keys = (getattr(model_config, "num_key_value_heads", None) or heads) * head_dim
    rows = min(config.sampler.max_rows, config.rollout.train_batch_size * config.rollout.group_size)
    return float(2 * width * model_config.num_hidden_layers * keys * rows * _longest(model_config, config))
