"""Loss and gradient on one fixed batch equal those of TRL's GRPOTrainer.

Advantages are injected: TRL divides by the standard deviation plus 1e-4 where we, as verl, add 1e-6.
"""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from microcoder_core.grpo.batching import CompletionTokens, Row, ScoredSequence, collate
from microcoder_core.grpo.config import LossConfig
from microcoder_core.grpo.loss import policy_loss, token_weight
from microcoder_core.grpo.policy import backward, token_logprobs
from tests.tiny import tiny_model

trl = pytest.importorskip("trl", reason="trl is not installed")

LIMIT = 20
COMMON = {"clip_low": 0.2, "clip_high": 0.28}
CASES = {
    "dapo": ("dapo", LossConfig(aggregation="token_mean", **COMMON), {}),
    "grpo": ("grpo", LossConfig(aggregation="sequence_mean", **COMMON), {}),
    "grpo with KL": (
        "grpo",
        LossConfig(aggregation="sequence_mean", kl_coef=0.04, **COMMON),
        {"use_bias_correction_kl": False},
    ),
    "dr_grpo": ("dr_grpo", LossConfig(aggregation="constant", **COMMON), {}),
    "dual clip": ("dapo", LossConfig(aggregation="token_mean", dual_clip=1.5, **COMMON), {"delta": 1.5}),
}


def rows(temperature: float, aggregation: str) -> list[ScoredSequence]:
    """Completions of several lengths whose ratios lie on both sides of both clips."""
    draw = random.Random(0)
    texts = [
        (
            tuple(draw.randrange(2, 64) for _ in range(draw.randrange(1, 9))),
            tuple(draw.randrange(2, 64) for _ in range(draw.randrange(1, LIMIT))),
        )
        for _ in range(8)
    ]
    sizes = {"num_tokens": sum(len(completion) for _, completion in texts), "num_sequences": len(texts), "max_new_tokens": LIMIT}
    return [
        ScoredSequence(
            prompt_ids=prompt,
            completion_ids=completion,
            sampler_logprobs=(0.0,) * len(completion),
            old_logprobs=tuple(-4.16 + draw.uniform(-0.7, 0.7) for _ in completion),
            advantage=draw.uniform(-2, 2),
            temperature=temperature,
            weight=token_weight(len(completion), aggregation=aggregation, **sizes),
        )
        for prompt, completion in texts
    ]


def padded(values: Sequence[Sequence[float]], side: str = "right") -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(one) for one in values], batch_first=True, padding_side=side)


def by_sequence(tokens: torch.Tensor, sequences: Sequence[ScoredSequence]) -> list[list[float]]:
    return [part.tolist() for part in tokens.split([len(one.completion_ids) for one in sequences])]


def gradient(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([weight.grad.flatten() for weight in model.parameters() if weight.grad is not None])


def tokenizer() -> Any:
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = models.WordLevel({"<pad>": 0, "<end>": 1, **{f"w{n}": n for n in range(2, 64)}}, unk_token="<pad>")
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(words), pad_token="<pad>", eos_token="<end>")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("temperature", [1.0, 1.2])
@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradient_are_those_of_trl(case: str, temperature: float, tmp_path: Path) -> None:
    from datasets import Dataset

    loss_type, config, options = CASES[case]
    sequences = rows(temperature, config.aggregation)
    batch = collate([Row(one.prompt_ids, (one,)) for one in sequences], 0, "cpu")
    if config.kl_coef:
        batch = replace(batch, tokens=replace(batch.tokens, ref_logprobs=token_logprobs(tiny_model(seed=1), batch, torch.float32)))
    ours, parts = tiny_model().train(), []

    def objective(logprobs: torch.Tensor, tokens: CompletionTokens) -> torch.Tensor:
        parts.append(
            policy_loss(logprobs, tokens.old_logprobs, tokens.advantages, tokens.weights, config, ref_logprobs=tokens.ref_logprobs)
        )
        return parts[-1].loss

    backward(ours, batch, objective, torch.float32)
    (terms,) = parts
    assert terms.clipped_low > 0
    assert terms.clipped_high > 0

    theirs = tiny_model().train()
    arguments = trl.GRPOConfig(
        output_dir=str(tmp_path),
        loss_type=loss_type,
        epsilon=config.clip_low,
        epsilon_high=config.clip_high,
        temperature=temperature,
        per_device_train_batch_size=8,
        num_generations=8,
        max_completion_length=LIMIT,
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=True,
        report_to="none",
        beta=0.0,
        **options,
    )
    trainer = trl.GRPOTrainer(
        model=theirs,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=arguments,
        train_dataset=Dataset.from_list([{"prompt": "w2"}]),
        processing_class=tokenizer(),
    )
    trainer.current_gradient_accumulation_steps = 1
    trainer.beta = config.kl_coef  # given to the constructor, it would load a reference model from a path
    inputs = {
        "prompt_ids": padded([one.prompt_ids for one in sequences], "left"),
        "prompt_mask": padded([(1,) * len(one.prompt_ids) for one in sequences], "left"),
        "completion_ids": padded([one.completion_ids for one in sequences]),
        "completion_mask": padded([(1,) * len(one.completion_ids) for one in sequences]),
        "advantages": torch.tensor([one.advantage for one in sequences]),
        "old_per_token_logps": padded([one.old_logprobs for one in sequences]),
        "num_items_in_batch": torch.tensor(sum(len(one.completion_ids) for one in sequences)),
        "ref_per_token_logps": None if batch.tokens.ref_logprobs is None else padded(by_sequence(batch.tokens.ref_logprobs, sequences)),
    }
    loss = trainer._compute_loss(trainer.model, inputs)
    loss.backward()
    assert float(terms.loss.detach()) == pytest.approx(float(loss.detach()), abs=1e-5)
    assert torch.allclose(gradient(ours), gradient(trainer.model), atol=1e-5)
    assert gradient(ours).abs().max() > 1e-3
