"""Models from a folder or the hub, and how many threads they use."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from microcoder_core.cpus import available_cpus
from microcoder_core.errors import InputError
from microcoder_core.sampling.base import Dtype
from microcoder_core.sampling.prompt import PromptTemplate, load_prompt_template

_TOKENIZER_FILES = ("tokenizer*", "vocab*", "*.model")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A causal language model ready for use."""

    name: str
    """The folder or hub id that it was loaded from."""
    model: Any
    tokenizer: Any
    prompt_template: PromptTemplate
    stored_dtype: torch.dtype
    """Of the weights as they were stored."""
    compute_dtype: torch.dtype
    """Of the matrix products; that of the weights, but for a model that is to be trained."""

    @property
    def max_positions(self) -> int | None:
        """Tokens of prompt and completion together that the model was made for; None where it does not say."""
        return getattr(self.model.config, "max_position_embeddings", None)

    def check_room(self, prompt_tokens: int, max_new_tokens: int, what: str) -> None:
        """Raises InputError where a prompt and its completion do not fit into the model's positions."""
        if self.max_positions is None or prompt_tokens + max_new_tokens <= self.max_positions:
            return
        room = self.max_positions - prompt_tokens
        advice = f"lower max_new_tokens to {room}" if room > 0 else "leave it out, or shorten it"
        raise InputError(
            f"max_new_tokens: {what} has {prompt_tokens} prompt tokens, which with {max_new_tokens} new ones are more than the "
            f"model's {self.max_positions} positions; {advice}"
        )


def load_model(name: str, dtype: Dtype = "auto", *, trainable: bool = False) -> LoadedModel:
    """The model, tokenizer and prompt template in a folder, or of a hub id.

    Args:
        name: A folder, or an id such as `Qwen/Qwen3-1.7B`.
        dtype: `auto` is bfloat16 on a GPU and float32 on a CPU, where bfloat16 is slow.
        trainable: Keep the weights in float32 whatever `dtype`, which is then that of the computation alone: a bfloat16 weight has 8
            significant bits, so that a step of less than 1/512 of it is rounded away.

    Raises:
        InputError: Nothing loadable there; says what transformers said.
    """
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()  # it draws on stderr even where that is no terminal
    folder = Path(name)
    check_model_name(name)
    if folder.is_dir() and not any(found for pattern in _TOKENIZER_FILES for found in folder.glob(pattern)):
        raise InputError(f"model: {name} holds no tokenizer, without which transformers makes an empty one; give a whole model folder")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    compute_dtype = _torch_dtype(dtype, device)
    try:
        tokenizer = AutoTokenizer.from_pretrained(name)
        stored_dtype = AutoConfig.from_pretrained(name).dtype or torch.float32
        weights_dtype = torch.float32 if trainable else compute_dtype
        model, report = AutoModelForCausalLM.from_pretrained(name, dtype=weights_dtype, output_loading_info=True)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # what a damaged file raises differs from file to file
        said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise InputError(f"model: cannot load {name} ({said}); give a model folder with its tokenizer, a hub id or 'nano'") from None
    if report["missing_keys"]:
        raise InputError(f"model: {name} lacks weights ({', '.join(sorted(report['missing_keys'])[:3])}, ...); give a whole model folder")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return LoadedModel(
        name=name,
        model=model.to(device),
        tokenizer=tokenizer,
        prompt_template=load_prompt_template(folder, tokenizer),
        stored_dtype=stored_dtype,
        compute_dtype=compute_dtype,
    )


def check_model_name(name: str) -> None:
    """Raises InputError where a name can only be a folder, and is none."""
    if _is_path(name) and not Path(name).is_dir():
        raise InputError(f"model: no such folder, got {name}; give a model folder, a hub id or 'nano'")


def _is_path(name: str) -> bool:
    """Whether a name must be a folder: `owner/name` may be a hub id too, unless a folder `owner` is here."""
    return name.startswith((".", "/", "~")) or name.count("/") > 1 or ("/" in name and Path(name).parent.is_dir())


def _torch_dtype(dtype: Dtype, device: str) -> torch.dtype:
    if dtype == "auto":
        return torch.bfloat16 if device == "cuda" else torch.float32
    return torch.float32 if dtype == "float32" else torch.bfloat16


def computing(model: Any, dtype: torch.dtype) -> torch.autocast:
    """Inside, matrix products of `model` are of `dtype`, whatever its weights are."""
    return torch.autocast(model.device.type, dtype, enabled=dtype != model.dtype)


def set_torch_threads(threads: int | None) -> int:
    """Sets the threads of torch's CPU kernels: `threads`, else OMP_NUM_THREADS, else one a core; returns the number.

    Two processes that each take every core run ten times slower than with half of them each.
    """
    number = threads or int(os.environ.get("OMP_NUM_THREADS", "0")) or available_cpus()
    torch.set_num_threads(number)
    return number
