"""Models from a folder or the hub, and how many threads they use."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from microcoder_core.errors import InputError
from microcoder_core.sampling.base import Dtype
from microcoder_core.sampling.prompt import PromptTemplate, load_prompt_template


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A causal language model ready for use."""

    model: Any
    tokenizer: Any
    prompt_template: PromptTemplate


def load_model(name: str, dtype: Dtype = "auto") -> LoadedModel:
    """The model, tokenizer and prompt template in a folder, or of a hub id.

    Args:
        name: A folder, or an id such as `Qwen/Qwen3-1.7B`.
        dtype: `auto` is bfloat16 on a GPU and float32 on a CPU, where bfloat16 is slow.

    Raises:
        InputError: Nothing loadable there; says what transformers said.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()  # it draws on stderr even where that is no terminal
    folder = Path(name)
    looks_like_path = name.startswith((".", "/", "~")) or name.count("/") > 1
    if looks_like_path and not folder.is_dir():
        raise InputError(f"model: no such folder, got {name}; give a model folder, a hub id or 'nano'")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        tokenizer = AutoTokenizer.from_pretrained(name)
        model = AutoModelForCausalLM.from_pretrained(name, dtype=_torch_dtype(dtype, device))
    except (OSError, ValueError) as error:
        raise InputError(f"model: cannot load {name} ({' '.join(str(error).split())[:300]})") from None
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return LoadedModel(model=model.to(device), tokenizer=tokenizer, prompt_template=load_prompt_template(folder, tokenizer))


def _torch_dtype(dtype: Dtype, device: str) -> torch.dtype:
    if dtype == "auto":
        return torch.bfloat16 if device == "cuda" else torch.float32
    return torch.float32 if dtype == "float32" else torch.bfloat16


def set_torch_threads(threads: int | None) -> int:
    """Sets the threads of torch's CPU kernels: `threads`, else OMP_NUM_THREADS, else one a core; returns the number.

    Two processes that each take every core run ten times slower than with half of them each.
    """
    number = threads or int(os.environ.get("OMP_NUM_THREADS", "0")) or os.cpu_count() or 1
    torch.set_num_threads(number)
    return number
