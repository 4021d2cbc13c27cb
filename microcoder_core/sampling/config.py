"""Settings of the sampler."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from microcoder_core.config import Config, check_web_address

SamplerKind = Literal["transformers", "vllm", "vllm_server"]

TOKEN_VARIABLE = "VLLM_API_KEY"
"""Environment variable with a server's bearer token, at the server and at its clients: never a setting, since settings are tracked."""

_USED_BY: dict[str, tuple[SamplerKind, ...]] = {
    "url": ("vllm_server",),
    "sync_folder": ("vllm_server",),
    "stall_deadline_s": ("vllm_server",),
    "sync_deadline_s": ("vllm", "vllm_server"),
    "gpu_memory_utilization": ("vllm",),
    "cpu_cache_gib": ("vllm",),
    "max_positions": ("vllm",),
    "sleep": ("vllm",),
}
"""Settings that another kind would silently ignore, and whose they are."""


class SamplerConfig(Config):
    """What writes completions, and how it gets the weights."""

    kind: SamplerKind = "transformers"
    """`transformers`: the trained model itself; `vllm`: a vLLM engine in this process; `vllm_server`: a server at `url` that
    `microcoder serve-model` started."""
    max_rows: Annotated[int, Field(ge=1)] = 256
    """Completions written at once; further ones wait. Source: vLLM's own default; untested for `transformers`."""
    url: str | None = None
    """Address of the server, such as `http://sampler:8000`. A server that asks for a bearer token finds it in the environment variable
    VLLM_API_KEY. Only for `vllm_server`, which needs it."""
    sync_folder: Path | None = None
    """Folder that this process and the server both see, through which the weights go as a file of the model's size, which is deleted
    afterwards. Null: a temporary folder, which serves where both are on one machine. Only for `vllm_server`."""
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = 0.3
    """Share of the GPU's memory that the engine of `vllm` takes for weights and cache; the rest is left to training. Source: TRL's
    default for an engine beside the trainer."""
    cpu_cache_gib: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """GiB of the key-value cache where the engine of `vllm` runs on a CPU. Chosen: ample for the nano model."""
    max_positions: Annotated[int, Field(ge=1)] | None = None
    """Tokens of a prompt and its completion together that the engine of `vllm` makes room for. Null: the model's own number, for which
    a large model's cache may be too small. Only for `vllm`."""
    sleep: bool = False
    """Whether the engine of `vllm` frees its cache and moves its weights to the CPU's memory while the trainer updates. Needs CUDA."""
    sync_deadline_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 300.0
    """How long an engine may take to get new weights, and a server to answer at the start. Chosen: a file of 30 GB at 100 MB/s."""
    stall_deadline_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1800.0
    """How long a server may bring no completion to an end. Chosen: 16,384 tokens at 10 a second."""

    def without_place(self) -> Self:
        """The settings without those that say where it runs and how long it is waited for: samples do not depend on them."""
        fields = ("url", "sync_folder", "gpu_memory_utilization", "cpu_cache_gib", "sleep", "sync_deadline_s", "stall_deadline_s")
        place = {name: SamplerConfig.model_fields[name].default for name in fields}
        return self.model_copy(update=place)

    @field_validator("url")
    @classmethod
    def _web_address(cls, value: str | None) -> str | None:
        if value is None:
            return None
        return check_web_address(value, example="http://sampler:8000", token_variable=TOKEN_VARIABLE).removesuffix("/v1")

    @model_validator(mode="after")
    def _settings_of_its_kind(self) -> Self:
        if self.kind == "vllm_server" and self.url is None:
            raise ValueError("url: kind vllm_server needs the server's address, got none; start one with `microcoder serve-model`")
        for name, kinds in _USED_BY.items():
            given = getattr(self, name)
            if given != SamplerConfig.model_fields[name].default and self.kind not in kinds:
                raise ValueError(
                    f"{name}: is for kind {' or '.join(kinds)}, got {given} with kind {self.kind}; leave it out or change kind"
                )
        return self
