"""Adapters: only they move, they do what the merged model does, and they resume bit for bit."""

from pathlib import Path
from typing import Any

import pytest
import torch

from microcoder_core.errors import InputError
from microcoder_core.grpo.checkpoint import Checkpoints
from microcoder_core.grpo.config import LoraConfig
from microcoder_core.grpo.lora import add_adapters
from microcoder_core.grpo.trainer import Trainer
from microcoder_core.grpo.weights import full_weights, plain_model
from microcoder_core.sampling.models import load_model
from microcoder_core.sampling.transformers_sampler import TransformersSampler
from tests.tiny import EvenRewarder, TinyTokenizer, tiny_config, tiny_model, tiny_tasks

LORA = {"lora": {"rank": 4}}


def adapted() -> Any:
    torch.manual_seed(1)
    return add_adapters(tiny_model(), LoraConfig(rank=4))


def trained(model: Any, work: Path | None = None, **changes: Any) -> Trainer:
    torch.set_num_threads(1)
    one = Trainer(
        tiny_config(**LORA, **changes),
        model=model,
        pad_id=0,
        tasks=tiny_tasks(),
        sampler=TransformersSampler(model, TinyTokenizer()),
        rewarder=EvenRewarder(),
        checkpoints=None if work is None else Checkpoints(work, 2),
    )
    one.train()
    return one


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=torch.arange(2, 40)[None]).logits  # type: ignore[no-any-return]


def test_adapters_do_nothing_at_first_and_alone_move() -> None:
    model = adapted()
    assert torch.equal(logits(model), logits(tiny_model()))
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    trained(model, loss={"kl_coef": 0.1})
    moved = {name for name, weight in model.named_parameters() if not torch.equal(weight, before[name])}
    assert moved
    assert all("lora_" in name for name in moved)


def test_the_reference_of_a_model_with_adapters_is_the_model_without(tmp_path: Path) -> None:
    first, *_, last = trained(adapted(), loss={"kl_coef": 0.1}).history
    assert last["kl"] > first["kl"] >= 0


def test_the_merged_model_writes_what_the_adapted_one_does(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    model = adapted()
    trained(model)
    plain_model(model, torch.float32).save_pretrained(tmp_path)
    merged = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert not torch.allclose(logits(merged), logits(tiny_model()), atol=1e-3)
    assert torch.allclose(logits(merged), logits(model), atol=1e-5)
    assert dict(full_weights(model)).keys() == tiny_model().state_dict().keys()


def test_a_resumed_run_ends_with_the_same_adapters(tmp_path: Path) -> None:
    whole, stopped = adapted(), adapted()
    trained(whole)
    trained(stopped, tmp_path, max_steps=2)
    again = adapted()
    trained(again, tmp_path)
    assert all(torch.equal(one, other) for one, other in zip(whole.parameters(), again.parameters(), strict=True))


def test_names_that_no_layer_has_are_refused() -> None:
    with pytest.raises(InputError, match=r"lora.target_modules: .*nothing"):
        add_adapters(tiny_model(), LoraConfig(target_modules=("nothing",)))


@pytest.mark.filterwarnings("ignore")
def test_a_run_with_eight_bit_moments_resumes_with_them(tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed")
    eight = {"optimizer": {"kind": "adamw_8bit"}}
    whole, stopped, again = adapted(), adapted(), adapted()
    trained(whole, **eight)
    trained(stopped, tmp_path, max_steps=2, **eight)
    resumed = trained(again, tmp_path, **eight)
    assert {"state1", "state2"} <= next(iter(resumed._optimizer.state.values())).keys()
    assert all(torch.equal(one, other) for one, other in zip(whole.parameters(), again.parameters(), strict=True))


@pytest.mark.filterwarnings("ignore")
def test_four_bits_train_merge_and_load(tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed")
    from microcoder_core.nano import NANO_MODEL

    torch.manual_seed(0)
    loaded = load_model(str(NANO_MODEL), quantize="nf4")
    model = add_adapters(loaded.model, LoraConfig(rank=4, quantize="nf4"))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.02)
    assert type(loaded.model.model.layers[0].mlp.up_proj.base_layer).__name__ == "Linear4bit"
    merged = plain_model(model, torch.float32)
    with model.disable_adapter():
        assert not torch.allclose(logits(merged), logits(model), atol=0.5)
    assert torch.allclose(logits(merged), logits(model), atol=0.15)  # bitsandbytes' own product on a CPU is in bfloat16
    assert not hasattr(merged.config, "quantization_config")
