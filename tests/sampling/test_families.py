"""Each family of models goes through sampling, training and saving as Qwen3 does."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from microcoder_core.grpo.config import LoraConfig
from microcoder_core.grpo.lora import add_adapters
from microcoder_core.grpo.trainer import Trainer
from microcoder_core.grpo.weights import full_weights, plain_model
from microcoder_core.sampling.base import prompt_seeds
from microcoder_core.sampling.models import LoadedModel, disable_dropout, load_model
from microcoder_core.sampling.transformers_sampler import TransformersSampler
from microcoder_core.stages.train import save_model
from tests.families import FAMILIES, family_folder, family_model
from tests.ratios import worst_difference
from tests.tiny import EvenRewarder, tiny_config, tiny_tasks

PROMPTS = [(5, 6, 7), (9,), (4, 4, 4, 4, 4, 4)]


@pytest.fixture(params=FAMILIES)
def loaded(request: pytest.FixtureRequest, tmp_path: Path) -> LoadedModel:
    torch.set_num_threads(1)
    return load_model(str(family_folder(request.param, tmp_path / request.param)), trainable=True)


def worst_ratio(loaded: LoadedModel, temperature: float) -> float:
    """Largest difference of a log-probability of fresh samples, with the model in the mode that an update runs it in."""
    sampler = TransformersSampler(loaded.model, loaded.tokenizer)
    groups = sampler.sample(PROMPTS, seeds=prompt_seeds((0, 1), 3), group_size=4, temperature=temperature, max_new_tokens=16)
    loaded.model.train()
    return max(worst_difference(loaded.model, PROMPTS, groups, shared_row_tokens) for shared_row_tokens in (0, 100))


def test_the_ratio_of_fresh_samples_is_one_in_training_mode(loaded: LoadedModel) -> None:
    assert max(worst_ratio(loaded, temperature) for temperature in (0.6, 1.2, 1.8)) < 1e-4


def take_a_step(loaded: LoadedModel) -> None:
    Trainer(
        tiny_config(max_steps=1),
        model=loaded.model,
        pad_id=loaded.tokenizer.pad_token_id,
        tasks=tiny_tasks(),
        sampler=TransformersSampler(loaded.model, loaded.tokenizer),
        rewarder=EvenRewarder(),
    ).train()


def moved(loaded: LoadedModel, before: dict[str, torch.Tensor]) -> float:
    """Share of the weights that are no longer what they were."""
    now = dict(full_weights(loaded.model))
    return sum(not torch.equal(weight, now[name]) for name, weight in before.items()) / len(before)


def check_saved(loaded: LoadedModel, folder: Path) -> None:
    from transformers import AutoModelForCausalLM

    save_model(folder, plain_model(loaded.model, loaded.stored_dtype), loaded)
    token_ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        saved = AutoModelForCausalLM.from_pretrained(folder)(token_ids).logits
        assert torch.allclose(saved, loaded.model.eval()(input_ids=token_ids).logits, atol=1e-5)


def test_a_step_moves_the_weights_and_the_saved_model_answers_alike(loaded: LoadedModel, tmp_path: Path) -> None:
    before = {name: weight.clone() for name, weight in full_weights(loaded.model)}
    take_a_step(loaded)
    assert moved(loaded, before) > 0.5
    check_saved(loaded, tmp_path / "saved")


def test_adapters_are_trained_and_merged(loaded: LoadedModel, tmp_path: Path) -> None:
    before = {name: weight.clone() for name, weight in full_weights(loaded.model)}
    adapted = replace(loaded, model=add_adapters(loaded.model, LoraConfig(rank=4)))
    take_a_step(adapted)
    assert 0 < moved(adapted, before) < 1
    check_saved(adapted, tmp_path / "saved")


def test_with_dropout_the_ratio_would_not_be_one(tmp_path: Path) -> None:
    loaded = load_model(str(family_folder("starcoder2", tmp_path / "model")))
    assert worst_ratio(loaded, 1.2) > 0.01
    disable_dropout(loaded.model)
    assert worst_ratio(loaded, 1.2) < 1e-4


@pytest.mark.parametrize("name", ["starcoder2", "gpt2"])
def test_no_dropout_is_left(name: str) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=64)) if name == "gpt2" else family_model(name)
    token_ids = torch.tensor([[5, 6, 7, 8]])
    assert not torch.equal(model.train()(token_ids).logits, model.eval()(token_ids).logits)
    disable_dropout(model)
    assert torch.equal(model.train()(token_ids).logits, model.eval()(token_ids).logits)
