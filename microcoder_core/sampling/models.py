"""Models from a folder or the hub, and how many threads they use."""

from __future__ import annotations

import importlib.util
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from microcoder_core.cpus import available_cpus
from microcoder_core.errors import InputError
from microcoder_core.sampling.base import Dtype
from microcoder_core.sampling.hub import HubProblem, problem_of_model
from microcoder_core.sampling.prompt import PROMPT_FILE, PromptTemplate, load_prompt_template

logger = logging.getLogger(__name__)

_TOKENIZER_FILES = ("tokenizer*", "vocab*", "*.model")
_NOISE = ("drop", "jitter")
"""In the names of numbers that make a model in training mode answer at random."""


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


def load_model(name: str, dtype: Dtype = "auto", *, trainable: bool = False, quantize: Literal["nf4"] | None = None) -> LoadedModel:
    """The model, tokenizer and prompt template in a folder, or of a hub id.

    Where the hub does not give the files, those that an earlier download left in its local cache are taken.

    Args:
        name: A folder, or an id such as `Qwen/Qwen3-1.7B`.
        dtype: `auto` is bfloat16 on a GPU and float32 on a CPU, where bfloat16 is slow.
        trainable: Keep the weights in float32 whatever `dtype`, which is then that of the computation alone: a bfloat16 weight has 8
            significant bits, so that a step of less than 1/512 of it is rounded away.
        quantize: Keep the linear layers in 4 bits, for adapters to be trained on them.

    Raises:
        InputError: Nothing loadable there; says what the hub or transformers said.
    """
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()  # it draws on stderr even where that is no terminal
    folder = Path(name)
    check_model_name(name)
    if folder.is_dir() and not any(found for pattern in _TOKENIZER_FILES for found in folder.glob(pattern)):
        raise InputError(f"model: {name} holds no tokenizer, without which transformers makes an empty one; give a whole model folder")
    problem = None if folder.is_dir() else problem_of_model(name)
    source = {"local_files_only": problem is not None}
    device = own_device()
    compute_dtype = torch_dtype(dtype, device.type)
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, **source)
        stored_dtype = AutoConfig.from_pretrained(name, **source).dtype or torch.float32
        weights_dtype = torch.float32 if trainable else compute_dtype
        options = source | {"device_map": {"": device}} | ({"quantization_config": _in_four_bits(compute_dtype)} if quantize else {})
        model, report = AutoModelForCausalLM.from_pretrained(name, dtype=weights_dtype, output_loading_info=True, **options)
    except (torch.OutOfMemoryError, InputError):
        raise
    except Exception as error:  # what a damaged file raises differs from file to file
        raise _cannot_load(name, error, problem) from None
    if problem is not None:
        logger.warning("model: %s; %s comes from the local cache", problem.said, name)
    if report["missing_keys"]:
        raise InputError(f"model: {name} lacks weights ({', '.join(sorted(report['missing_keys'])[:3])}, ...); give a whole model folder")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    if trainable:
        disable_dropout(model)
    return LoadedModel(
        name=name,
        model=model,
        tokenizer=tokenizer,
        prompt_template=load_prompt_template(_template_folder(name, **source), tokenizer),
        stored_dtype=stored_dtype,
        compute_dtype=compute_dtype,
    )


def own_device() -> torch.device:
    """The GPU of this process among those of its machine, or the CPU."""
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if torch.cuda.is_available() else torch.device("cpu")


def _in_four_bits(compute_dtype: torch.dtype) -> Any:
    from transformers import BitsAndBytesConfig

    if importlib.util.find_spec("bitsandbytes") is None:
        raise InputError("lora.quantize: nf4 needs bitsandbytes; pip install bitsandbytes")
    return BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=compute_dtype)


def _cannot_load(name: str, error: Exception, problem: HubProblem | None) -> InputError:
    if problem is not None and isinstance(error, OSError):
        return InputError(f"model: cannot load {name}: {problem.said}, and no download of it is whole in the local cache; {problem.advice}")
    said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    return InputError(f"model: cannot load {name} ({said}); give a model folder with its tokenizer, a hub id or 'nano'")


def _template_folder(name: str, *, local_files_only: bool) -> Path:
    """The folder with the prompt template of a model; one without, where it has none."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError

    if Path(name).is_dir():
        return Path(name)
    try:
        return Path(hf_hub_download(name, PROMPT_FILE, local_files_only=local_files_only)).parent
    except EntryNotFoundError:
        return Path(name)


def disable_dropout(model: Any) -> None:
    """Sets every dropout and router jitter of a model to 0, in its modules and in its configuration.

    What is trained must be what was sampled: with dropout the ratio of fresh samples would not be 1. transformers reads some of these
    numbers from attributes of a module (`attention_dropout`), some from the configuration, some are modules of torch.
    """
    for module in model.modules():
        if isinstance(module, torch.nn.modules.dropout._DropoutNd):
            module.p = 0.0
        _set_noise_to_zero(module)
        if (config := getattr(module, "config", None)) is not None:
            _set_noise_to_zero(config)


def _set_noise_to_zero(holder: Any) -> None:
    for name, value in vars(holder).items():
        if isinstance(value, float) and any(kind in name for kind in _NOISE):
            setattr(holder, name, 0.0)


def check_model_name(name: str) -> None:
    """Raises InputError where a name can only be a folder, and is none."""
    if _is_path(name) and not Path(name).is_dir():
        raise InputError(f"model: no such folder, got {name}; give a model folder, a hub id or 'nano'")


def _is_path(name: str) -> bool:
    """Whether a name must be a folder: `owner/name` may be a hub id too, unless a folder `owner` is here."""
    return name.startswith((".", "/", "~")) or name.count("/") > 1 or ("/" in name and Path(name).parent.is_dir())


def load_model_config(name: str) -> Any:
    """Transformers' configuration of a model, without its weights; see `load_model`."""
    from transformers import AutoConfig

    check_model_name(name)
    problem = None if Path(name).is_dir() else problem_of_model(name)
    try:
        return AutoConfig.from_pretrained(name, local_files_only=problem is not None)
    except Exception as error:  # what a damaged file raises differs from file to file
        raise _cannot_load(name, error, problem) from None


def torch_dtype(dtype: Dtype, device: str) -> torch.dtype:
    """The dtype that a setting means on a kind of device."""
    if dtype == "auto":
        return torch.bfloat16 if device == "cuda" else torch.float32
    return torch.float32 if dtype == "float32" else torch.bfloat16


def base_model(model: Any) -> Any:
    """The transformers model under any adapters, which stay in effect."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def computing(model: Any, dtype: torch.dtype, *, keeps_casts: bool = True) -> torch.autocast:
    """Inside, matrix products of `model` are of `dtype`, whatever its weights are.

    Args:
        keeps_casts: Whether a weight's copy in `dtype` is kept to the end, for a model that runs more than once.
    """
    return torch.autocast(model.device.type, dtype, enabled=dtype != model.dtype, cache_enabled=keeps_casts)


def set_torch_threads(threads: int | None) -> int:
    """Sets the threads of torch's CPU kernels: `threads`, else OMP_NUM_THREADS, else one a core; returns the number.

    Two processes that each take every core run ten times slower than with half of them each.
    """
    number = threads or int(os.environ.get("OMP_NUM_THREADS", "0")) or available_cpus()
    torch.set_num_threads(number)
    return number
