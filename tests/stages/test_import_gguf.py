"""The stage `import-gguf` on a tiny file that is written here."""

import importlib.util
import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from microcoder_core.errors import InputError, MicrocoderError
from microcoder_core.nano import NANO_MODEL
from microcoder_core.sampling.models import load_model
from microcoder_core.sampling.transformers_sampler import end_token_ids
from microcoder_core.stages.import_gguf import import_gguf
from microcoder_core.stages.model_source import model_sha256
from tests.families import family_model

TEMPLATE = "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '<|pad|>\n' }}{% endfor %}"


def write_gguf(file: Path, model: Any, **values: Any) -> Path:
    """A Qwen model with the nano model's tokenizer as a GGUF file; `values` replace metadata, None leaves it out."""
    gguf = pytest.importorskip("gguf", reason="the package gguf is not installed")
    config, tokenizer = model.config, json.loads((NANO_MODEL / "tokenizer.json").read_text())
    ids = tokenizer["model"]["vocab"] | {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    tokens = sorted(ids, key=ids.__getitem__)
    tokens.append("<|endoftext|>")  # which transformers expects of a Qwen3 vocabulary
    assert len(tokens) == config.vocab_size
    numbers = {
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
    }
    writer = gguf.GGUFWriter(file, values.get("architecture", config.model_type))  # llama's query and key weights would need reordering
    for name, number in numbers.items():
        writer.add_uint32(f"{config.model_type}.{name}", number)
    writer.add_float32(f"{config.model_type}.attention.layer_norm_rms_epsilon", config.rms_norm_eps)
    writer.add_float32(f"{config.model_type}.rope.freq_base", config.rope_parameters["rope_theta"])
    writer.add_file_type(0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(values.get("pre", "gpt-2"))
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL if one.startswith("<|") else gguf.TokenType.NORMAL for one in tokens])
    writer.add_token_merges([" ".join(merge) for merge in tokenizer["model"]["merges"]])
    if (end := values.get("end", 1)) is not None:
        writer.add_eos_token_id(end)
    if (parts := values.get("parts")) is not None:
        writer.add_uint16("split.count", parts)
    if (template := values.get("template")) is not None:
        writer.add_chat_template(template)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[config.model_type.upper()], config.num_hidden_layers)
    for name, weight in model.state_dict().items():
        writer.add_tensor(names.get_name(name, (".weight", ".bias")), weight.float().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


@pytest.fixture(scope="module")
def model() -> Any:
    return family_model("qwen3", head_dim=128).eval()  # the width that transformers takes every Qwen3 GGUF to have


def test_weights_tokens_and_end_are_those_of_the_file(model: Any, tmp_path: Path) -> None:
    result = import_gguf(write_gguf(tmp_path / "m.gguf", model), tmp_path / "model")
    assert (result.architecture, result.quantization, result.end_tokens) == ("qwen3", "F32", ("<|end|>",))
    loaded = load_model(str(tmp_path / "model"), trainable=True)
    assert loaded.stored_dtype == torch.bfloat16
    for name, weight in model.state_dict().items():
        assert torch.equal(loaded.model.state_dict()[name], weight.to(torch.bfloat16).float()), name
    text = "Given xs, keep the multiples of 3.\n    return [x for x in xs]\n"
    assert loaded.tokenizer(text)["input_ids"] == load_model(str(NANO_MODEL)).tokenizer(text)["input_ids"]
    assert end_token_ids(loaded.model, loaded.tokenizer) == {1}
    assert (tmp_path / "model" / "prompt_template.json").is_file()
    assert "quantization_config" not in json.loads((tmp_path / "model" / "config.json").read_text())
    assert len(model_sha256(str(tmp_path / "model"))) == 64


def test_the_token_after_an_answer_ends_a_response_too(model: Any, tmp_path: Path) -> None:
    result = import_gguf(write_gguf(tmp_path / "m.gguf", model, template=TEMPLATE), tmp_path / "model")
    assert (result.end_tokens, result.has_chat_template) == (("<|end|>", "<|pad|>"), True)
    loaded = load_model(str(tmp_path / "model"))
    assert end_token_ids(loaded.model, loaded.tokenizer) == {0, 1}
    assert loaded.prompt_template.kind == "chat"


def test_digits_are_cut_apart_where_the_file_says_so(model: Any, tmp_path: Path) -> None:
    import_gguf(write_gguf(tmp_path / "m.gguf", model, pre="smollm"), tmp_path / "model")
    backend = load_model(str(tmp_path / "model")).tokenizer.backend_tokenizer
    assert [part for part, _ in backend.pre_tokenizer.pre_tokenize_str("x  12")] == ["x", "ĠĠ", "1", "2"]


def test_a_family_that_transformers_gives_its_own_rule_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """AutoTokenizer makes a Qwen2Tokenizer of every tokenizer beside a Qwen2 model."""
    with caplog.at_level(logging.WARNING, "microcoder_core"):
        import_gguf(write_gguf(tmp_path / "m.gguf", family_model("qwen2"), pre="smollm"), tmp_path / "model")
    assert "makes other tokens of a text when it loads the folder" in caplog.text


def test_a_rule_that_nothing_knows_is_said(model: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "microcoder_core"):
        import_gguf(write_gguf(tmp_path / "m.gguf", model, pre="deepseek-coder"), tmp_path / "model")
    assert "'deepseek-coder', which transformers does not know" in caplog.text


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"architecture": "unheard_of"}, "architecture 'unheard_of'.*not supported yet"),
        ({"end": None}, "names no token that ends a response"),
        ({"parts": 3}, "one of 3 parts of a model; merge them"),
    ],
)
def test_a_file_that_makes_no_model_is_refused(model: Any, tmp_path: Path, values: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        import_gguf(write_gguf(tmp_path / "m.gguf", model, **values), tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_cut_file_is_refused(model: Any, tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "m.gguf", model)
    file.write_bytes(file.read_bytes()[:20_000])
    with pytest.raises(InputError, match="cannot be read as GGUF"):
        import_gguf(file, tmp_path / "model")


def test_what_is_no_gguf_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "weights.gguf").write_text("hello")
    for file, said in ((tmp_path / "weights.gguf", "is no GGUF file"), (tmp_path / "none.gguf", "no such file"), (tmp_path, "is a folder")):
        with pytest.raises(InputError, match=said):
            import_gguf(file, tmp_path / "model")


def test_a_folder_of_the_user_is_not_replaced_and_an_earlier_import_is(model: Any, tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "m.gguf", model)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="not an output of microcoder"):
        import_gguf(file, tmp_path / "mine")
    import_gguf(file, tmp_path / "model")
    digest = model_sha256(str(tmp_path / "model"))
    import_gguf(file, tmp_path / "model")
    assert model_sha256(str(tmp_path / "model")) == digest


def test_without_the_package_gguf_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MicrocoderError, match=r"pip install 'microcoder\[gguf\]'"):
        import_gguf(tmp_path / "m.gguf", tmp_path / "model")
