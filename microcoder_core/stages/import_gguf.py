"""The stage `import-gguf`: a GGUF file in; a model folder that `from_pretrained` loads out."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import io
import logging
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from microcoder_core.errors import InputError, MicrocoderError
from microcoder_core.sampling.prompt import load_prompt_template
from microcoder_core.stages.results import ImportedModelResult
from microcoder_core.storage.atomic import atomic_folder, check_replaceable
from microcoder_core.storage.stage_output import StageRecord, write_stage_record

logger = logging.getLogger(__name__)

MODEL_KIND = "imported model"

_DIGITS_APART = ("codeshell", "command-r", "refact", "smollm", "starcoder")
"""Values of `tokenizer.ggml.pre` that mean: each digit apart, then as in GPT-2 (llama.cpp's table of pre-tokenizers)."""
_AS_GPT2 = (None, "default", "gpt-2", "gpt2")
"""Those that mean: as in GPT-2, which is what transformers makes of a byte-level file that it knows no other rule for."""
_ANSWER = "answer"
_SAMPLE = "x  =  1234\n    if x >= 10 and it's:\n\n        return  [x - 12, '\u00e9\u4e2d']\t# 5\n"
"""Text on which rules of cutting differ."""


@dataclass(frozen=True, slots=True)
class _Header:
    """What a GGUF file says of its model."""

    architecture: str
    quantization: str
    license: str | None
    pre_tokenizer: str | None
    end_token_ids: tuple[int, ...]


def import_gguf(file: Path, out: Path) -> ImportedModelResult:
    """Writes the model in a GGUF file as a folder of bfloat16 weights, tokenizer, generation configuration and prompt template.

    Args:
        file: One file with model and tokenizer.
        out: The model folder; an earlier import there is replaced.

    Raises:
        InputError: No GGUF file, a damaged one, or an architecture that transformers does not read from GGUF.
        MicrocoderError: The package `gguf` is not installed.
    """
    check_replaceable(out, MODEL_KIND)
    _check_is_gguf(file)
    header = _read_header(file)
    model, tokenizer = _load(file, header)
    end_tokens = _end_token_ids(header, tokenizer)
    if not end_tokens:
        raise InputError(f"{file}: names no token that ends a response (tokenizer.ggml.eos_token_id); give a file that does")
    model.generation_config.eos_token_id = list(end_tokens) if len(end_tokens) > 1 else end_tokens[0]
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    result = ImportedModelResult(
        architecture=header.architecture,
        quantization=header.quantization,
        license=header.license,
        parameters=model.num_parameters(),
        end_tokens=tuple(tokenizer.convert_ids_to_tokens(list(end_tokens))),
        has_chat_template=bool(tokenizer.chat_template),
    )
    with atomic_folder(out, MODEL_KIND) as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        load_prompt_template(folder, tokenizer).save(folder)
        _check_loads_alike(folder, tokenizer)
        inputs = {"file": file.name, "file_sha256": _sha256(file)}
        write_stage_record(folder, StageRecord(stage="import-gguf", inputs=inputs, result=result.model_dump(mode="json")))
    return result


def _check_is_gguf(file: Path) -> None:
    if not file.is_file():
        raise InputError(f"{file}: {'is a folder' if file.is_dir() else 'no such file'}; give one GGUF file")
    with file.open("rb") as stream:
        if stream.read(4) != b"GGUF":
            raise InputError(f"{file}: is no GGUF file (it does not begin with GGUF); give one")
    if importlib.util.find_spec("gguf") is None:
        raise MicrocoderError("import-gguf needs the package gguf, which is not installed; pip install 'microcoder[gguf]'")


def _read_header(file: Path) -> _Header:
    from gguf import GGUFReader, LlamaFileType

    try:
        fields = GGUFReader(file).fields
    except Exception as error:  # what a damaged file raises differs from file to file
        raise InputError(f"{file}: cannot be read as GGUF ({_said(error)}); download it again") from None

    def value(name: str) -> Any:
        return fields[name].contents() if name in fields else None

    if (value("split.count") or 1) > 1:
        raise InputError(f"{file}: is one of {value('split.count')} parts of a model; merge them first (llama-gguf-split --merge)")
    if not isinstance(architecture := value("general.architecture"), str):
        raise InputError(f"{file}: names no architecture (general.architecture); give a model's GGUF file")
    if value("tokenizer.ggml.tokens") is None:
        raise InputError(f"{file}: holds no tokenizer (tokenizer.ggml.tokens); give a file with model and tokenizer")
    file_type = value("general.file_type")
    known = {one.value: one.name.removeprefix("MOSTLY_").removeprefix("ALL_") for one in LlamaFileType}
    ends = (value(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom"))
    return _Header(
        architecture=architecture,
        quantization=known.get(file_type, "unknown"),
        license=value("general.license"),
        pre_tokenizer=value("tokenizer.ggml.pre"),
        end_token_ids=tuple(int(token) for token in ends if token is not None),
    )


def _load(file: Path, header: _Header) -> tuple[Any, Any]:
    """Model in bfloat16, without any trace of its quantization, and tokenizer."""
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    folder = str(file.resolve().parent)
    try:
        with _bars_on_terminals_only():
            tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file.name)
            model, report = AutoModelForCausalLM.from_pretrained(
                folder, gguf_file=file.name, dtype=torch.bfloat16, output_loading_info=True, **_unpacked()
            )
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        raise InputError(
            f"{file}: transformers cannot load a GGUF file of architecture {header.architecture!r} ({_said(error)}); "
            "give the model in a folder that from_pretrained loads"
        ) from None
    if report["missing_keys"]:
        raise InputError(f"{file}: lacks weights ({', '.join(sorted(report['missing_keys'])[:3])}, ...); give a whole model")
    tokenizer = _plain_tokenizer(tokenizer)
    _split_as_trained(tokenizer, header.pre_tokenizer)
    return _plain_model(model), tokenizer


def _unpacked() -> dict[str, Any]:
    """Arguments that have transformers unpack the weights; earlier ones of version 5 always do."""
    try:
        from transformers import GgufConfig
    except ImportError:
        return {}
    return {"quantization_config": GgufConfig(dequantize=True)}


def _plain_model(model: Any) -> Any:
    """A model of the same weights and configuration that knows nothing of GGUF; shares the memory of the weights."""
    config = model.config.__class__.from_dict({k: v for k, v in model.config.to_dict().items() if k != "quantization_config"})
    config.architectures = [type(model).__name__]
    config.name_or_path = ""
    with torch.device("meta"):
        plain = type(model)(config)
    plain.load_state_dict(model.state_dict(), assign=True)
    plain.tie_weights()
    plain.generation_config = model.generation_config
    plain.config.dtype = torch.bfloat16
    return plain


def _plain_tokenizer(tokenizer: Any) -> Any:
    """The tokenizer as one of no family: a family's own class, when it is loaded, sets rules that the file may not have."""
    from transformers import PreTrainedTokenizerFast

    names = ("bos_token", "eos_token", "unk_token", "pad_token")
    special = {name: token for name in names if (token := getattr(tokenizer, name)) is not None}
    if "eos_token" in special:
        special.setdefault("pad_token", special["eos_token"])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer, chat_template=tokenizer.chat_template, **special)


def _split_as_trained(tokenizer: Any, rule: str | None) -> None:
    """Sets the rule by which text is cut before the merges, where the file names one that transformers does not set."""
    from tokenizers import pre_tokenizers

    backend = tokenizer.backend_tokenizer
    if not isinstance(backend.pre_tokenizer, pre_tokenizers.ByteLevel):
        return
    if rule in _DIGITS_APART:
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    elif rule not in _AS_GPT2:
        logger.warning(
            "import-gguf: the file's text is cut by the rule %r, which transformers does not know; GPT-2's takes its place, so that some "
            "texts become other tokens than those that the model was trained with",
            rule,
        )


def _check_loads_alike(folder: Path, tokenizer: Any) -> None:
    from transformers import AutoTokenizer

    loaded = AutoTokenizer.from_pretrained(folder)
    if loaded(_SAMPLE)["input_ids"] != tokenizer(_SAMPLE)["input_ids"]:
        logger.warning(
            "import-gguf: transformers makes other tokens of a text when it loads the folder, as %s, than the file's rule does, "
            "so that some texts become other tokens than those that the model was trained with",
            type(loaded).__name__,
        )


def _end_token_ids(header: _Header, tokenizer: Any) -> tuple[int, ...]:
    """Tokens that end a response: those that the file names, and the one that follows an answer in the chat template."""
    ends = dict.fromkeys((*header.end_token_ids, *_after_an_answer(tokenizer)))
    return tuple(ends)


def _after_an_answer(tokenizer: Any) -> tuple[int, ...]:
    if not tokenizer.chat_template:
        return ()
    messages = [{"role": "user", "content": "question"}, {"role": "assistant", "content": _ANSWER}]
    try:
        text = tokenizer.apply_chat_template(messages, tokenize=False)
    except Exception:  # a template may refuse any list of messages
        return ()
    after = tokenizer(text.rpartition(_ANSWER)[2].lstrip(), add_special_tokens=False)["input_ids"][:1]
    return tuple(token for token in after if token in (added := tokenizer.added_tokens_decoder) and added[token].special)


@contextlib.contextmanager
def _bars_on_terminals_only() -> Iterator[None]:
    """Inside, progress bars that cannot be turned off are drawn only where stderr is a terminal."""
    with contextlib.nullcontext() if sys.stderr.isatty() else contextlib.redirect_stderr(io.StringIO()):
        yield


def _said(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
