"""The loss: hand-computed numbers, and what must not change it."""

import math
import random
from typing import Any

import pytest
import torch

from microcoder_core.errors import InputError
from microcoder_core.grpo import policy
from microcoder_core.grpo.batching import CompletionTokens, ScoredSequence, collate, make_rows, plan_micro_batches
from microcoder_core.grpo.config import LossConfig
from microcoder_core.grpo.loss import importance_weights, k3, policy_loss, token_weight
from tests.tiny import tiny_model


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss"),
    [
        (1.0, 2.0, -2.0),
        (1.5, 1.0, -1.28),  # clipped above at 1 + 0.28
        (1.1, 1.0, -1.1),
        (0.5, 1.0, -0.5),  # the minimum keeps a ratio that fell with a positive advantage
        (0.5, -1.0, 0.8),  # clipped below at 1 - 0.2
        (1.5, -1.0, 1.5),
    ],
)
def test_one_token_by_hand(ratio: float, advantage: float, loss: float) -> None:
    new = torch.tensor([math.log(ratio)])
    terms = policy_loss(new, torch.zeros(1), torch.tensor([advantage]), torch.ones(1), LossConfig())
    assert float(terms.loss) == pytest.approx(loss, abs=1e-6)
    assert terms.clipped_high == (ratio > 1.28 and advantage > 0)
    assert terms.clipped_low == (ratio < 0.8 and advantage < 0)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss"),
    [
        (5.0, -2.0, 6.0),  # 10 without the bound, 3 * 2 with it
        (2.0, -2.0, 4.0),  # below the bound
        (0.5, -2.0, 1.6),  # clipped below, as ever
        (5.0, 2.0, -2.56),  # a positive advantage is clipped above, as ever
    ],
)
def test_dual_clip_by_hand(ratio: float, advantage: float, loss: float) -> None:
    new = torch.tensor([math.log(ratio)], requires_grad=True)
    terms = policy_loss(new, torch.zeros(1), torch.tensor([advantage]), torch.ones(1), LossConfig(dual_clip=3.0))
    assert float(terms.loss.detach()) == pytest.approx(loss, abs=1e-5)
    terms.loss.backward()
    assert new.grad is not None
    assert (float(new.grad) == 0) == (ratio != 2.0)  # a bound has no slope


def test_k3_by_hand() -> None:
    # policy p = 1/2, reference q = 1/4: r = 1/2, k3 = 1/2 - ln(1/2) - 1
    assert float(k3(torch.tensor(0.5).log(), torch.tensor(0.25).log())) == pytest.approx(0.5 + math.log(2) - 1)


def test_kl_is_added_with_its_coefficient() -> None:
    new, old, ref = torch.tensor([0.5]).log(), torch.tensor([0.5]).log(), torch.tensor([0.25]).log()
    terms = policy_loss(new, old, torch.zeros(1), torch.ones(1), LossConfig(kl_coef=2.0), ref_logprobs=ref)
    assert float(terms.loss) == pytest.approx(2 * (math.log(2) - 0.5), abs=1e-6)


def test_token_weights_of_the_three_aggregations() -> None:
    sizes = {"num_tokens": 10, "num_sequences": 2, "max_new_tokens": 8}
    assert token_weight(4, aggregation="token_mean", **sizes) == 1 / 10
    assert token_weight(4, aggregation="sequence_mean", **sizes) == 1 / 8
    assert token_weight(4, aggregation="constant", **sizes) == 1 / 16


def test_importance_weights_by_hand() -> None:
    old, sampler = torch.tensor([0.2, 0.2, 0.6]).log(), torch.tensor([0.4, 0.1, 0.1]).log()
    assert importance_weights(old, sampler, cap=3.0).tolist() == pytest.approx([0.5, 2.0, 3.0])


def test_importance_multiplies_the_objective_and_not_the_kl() -> None:
    new, ref = torch.tensor([0.5]).log(), torch.tensor([0.25]).log()
    one = torch.ones(1)
    config = LossConfig(kl_coef=1.0)
    terms = policy_loss(new, new, 2 * one, one, config, importance=torch.tensor([0.5]), ref_logprobs=ref)
    assert float(terms.loss) == pytest.approx(-1.0 + math.log(2) - 0.5, abs=1e-6)


def sequences(prompts: int = 4, group_size: int = 3) -> list[ScoredSequence]:
    """Groups of completions of several lengths, each with a temperature of its own."""
    draw = random.Random(0)
    made = []
    for _ in range(prompts):
        prompt_ids = tuple(draw.randrange(2, 64) for _ in range(draw.randrange(1, 9)))
        for _ in range(group_size):
            completion = tuple(draw.randrange(2, 64) for _ in range(draw.randrange(1, 20)))
            logprobs = tuple(-draw.uniform(3, 5) for _ in completion)
            made.append(
                ScoredSequence(
                    prompt_ids=prompt_ids,
                    completion_ids=completion,
                    sampler_logprobs=logprobs,
                    old_logprobs=logprobs,
                    advantage=draw.uniform(-2, 2),
                    temperature=draw.choice([0.6, 1.2, 1.8]),
                    weight=0.01,
                )
            )
    return made


def loss_of(logprobs: torch.Tensor, one: ScoredSequence) -> torch.Tensor:
    ones = torch.ones(len(one.completion_ids))
    return policy_loss(logprobs, torch.tensor(one.old_logprobs), one.advantage * ones, one.weight * ones, LossConfig()).loss


def plain_logprobs(model: torch.nn.Module, one: ScoredSequence) -> torch.Tensor:
    """Of one sequence alone, by the model as transformers has it."""
    ids = torch.tensor([[*one.prompt_ids, *one.completion_ids]])
    start = len(one.prompt_ids)
    logprobs = torch.log_softmax(model(ids).logits[0, start - 1 : -1] / one.temperature, dim=-1)
    return logprobs.gather(1, torch.tensor(one.completion_ids)[:, None])[:, 0]


def gradient(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([weight.grad.flatten() for weight in model.parameters() if weight.grad is not None])


@pytest.mark.parametrize("logits_at_once", [1, 1 << 23])
@pytest.mark.parametrize("shared_row_tokens", [0, 25, 1000])
@pytest.mark.parametrize("max_tokens", [1, 60, 10_000])
def test_loss_and_gradient_are_those_of_the_sequences_alone(
    max_tokens: int, shared_row_tokens: int, logits_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However they are cut into micro-batches, padded, packed into rows, ordered, and the head into parts."""
    model, alone = tiny_model().train(), tiny_model().train()
    monkeypatch.setattr(policy, "LOGITS_AT_ONCE", {"cpu": logits_at_once})
    monkeypatch.setattr(policy, "_FEWEST_TOKENS", 7)
    expected = sum((loss_of(plain_logprobs(alone, one), one) for one in sequences()), torch.zeros(()))
    expected.backward()
    losses = []

    def objective(logprobs: torch.Tensor, tokens: CompletionTokens) -> torch.Tensor:
        loss = policy_loss(logprobs, tokens.old_logprobs, tokens.advantages, tokens.weights, LossConfig()).loss
        losses.append(float(loss.detach()))
        return loss

    for rows in plan_micro_batches(sequences()[::-1], max_tokens, shared_row_tokens):
        policy.backward(model, collate(rows, 0, "cpu"), objective, torch.float32)
    assert sum(losses) == pytest.approx(float(expected.detach()), abs=1e-6)
    assert torch.allclose(gradient(model), gradient(alone), atol=1e-6)


@pytest.mark.parametrize("shared_row_tokens", [0, 1000])
def test_logprobs_equal_a_plain_forward_at_the_sequence_temperature(shared_row_tokens: int) -> None:
    model = tiny_model()
    (rows,) = plan_micro_batches(sequences(), 10_000, shared_row_tokens)
    with torch.no_grad():
        expected = torch.cat([plain_logprobs(model, one) for row in rows for one in row.sequences])
    assert torch.allclose(policy.token_logprobs(model, collate(rows, 0, "cpu"), torch.float32), expected, atol=1e-5)


def test_a_row_is_shared_up_to_its_limit_and_a_longer_completion_is_alone() -> None:
    rows = make_rows(sequences(), 25)
    assert sum(len(row.sequences) for row in rows) == len(sequences())
    assert all(row.length <= 25 or len(row.sequences) == 1 for row in rows)
    assert any(len(row.sequences) > 1 for row in rows)


def test_a_model_that_changes_its_logits_after_the_head_is_refused() -> None:
    model = tiny_model()
    policy.check_head(model)
    plain = model.forward

    def capped(**keywords: Any) -> Any:
        output = plain(**keywords)
        output.logits = output.logits.tanh() * 3
        return output

    model.forward = capped
    with pytest.raises(InputError, match="after the head"):
        policy.check_head(model)
