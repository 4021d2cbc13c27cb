"""The loss: hand-computed numbers, and what must not change it."""

import math
import random

import pytest
import torch

from microcoder_core.grpo.batching import ScoredSequence, micro_batches
from microcoder_core.grpo.config import LossConfig
from microcoder_core.grpo.loss import k3, policy_loss, token_weight
from microcoder_core.grpo.policy import completion_logprobs
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
    new = torch.tensor([[math.log(ratio)]])
    terms = policy_loss(new, torch.zeros(1, 1), torch.tensor([advantage]), torch.ones(1, 1), LossConfig())
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
    new = torch.tensor([[math.log(ratio)]], requires_grad=True)
    terms = policy_loss(new, torch.zeros(1, 1), torch.tensor([advantage]), torch.ones(1, 1), LossConfig(dual_clip=3.0))
    assert float(terms.loss.detach()) == pytest.approx(loss, abs=1e-5)
    terms.loss.backward()
    assert new.grad is not None
    assert (float(new.grad) == 0) == (ratio != 2.0)  # a bound has no slope


def test_k3_by_hand() -> None:
    # policy p = 1/2, reference q = 1/4: r = 1/2, k3 = 1/2 - ln(1/2) - 1
    assert float(k3(torch.tensor(0.5).log(), torch.tensor(0.25).log())) == pytest.approx(0.5 + math.log(2) - 1)


def test_kl_is_added_with_its_coefficient() -> None:
    new, old, ref = torch.tensor([[math.log(0.5)]]), torch.tensor([[math.log(0.5)]]), torch.tensor([[math.log(0.25)]])
    terms = policy_loss(new, old, torch.zeros(1), torch.ones(1, 1), LossConfig(kl_coef=2.0), ref)
    assert float(terms.loss) == pytest.approx(2 * (math.log(2) - 0.5), abs=1e-6)


def test_token_weights_of_the_three_aggregations() -> None:
    sizes = {"num_tokens": 10, "num_sequences": 2, "max_new_tokens": 8}
    assert token_weight(4, aggregation="token_mean", **sizes) == 1 / 10
    assert token_weight(4, aggregation="sequence_mean", **sizes) == 1 / 8
    assert token_weight(4, aggregation="constant", **sizes) == 1 / 16


def sequences(count: int = 12) -> list[ScoredSequence]:
    draw = random.Random(0)
    made = []
    for _ in range(count):
        completion = tuple(draw.randrange(2, 64) for _ in range(draw.randrange(1, 20)))
        made.append(
            ScoredSequence(
                prompt_ids=tuple(draw.randrange(2, 64) for _ in range(draw.randrange(1, 9))),
                completion_ids=completion,
                old_logprobs=tuple(-draw.uniform(3, 5) for _ in completion),
                advantage=draw.uniform(-2, 2),
                temperature=draw.choice([0.6, 1.2, 1.8]),
                weight=0.01,
            )
        )
    return made


def loss_and_gradient(model: torch.nn.Module, rows: list[ScoredSequence], max_tokens: int) -> tuple[float, torch.Tensor, int]:
    model.zero_grad()
    loss, batches = 0.0, 0
    for batch in micro_batches(rows, max_tokens, 0, "cpu"):
        terms = policy_loss(completion_logprobs(model, batch), batch.old_logprobs, batch.advantages, batch.weights, LossConfig())
        terms.loss.backward()
        loss += float(terms.loss.detach())
        batches += 1
    return loss, torch.cat([weight.grad.flatten() for weight in model.parameters()]), batches


@pytest.mark.parametrize("max_tokens", [1, 30, 64, 100])
def test_loss_and_gradient_are_the_same_for_any_micro_batch_split(max_tokens: int) -> None:
    model = tiny_model()
    whole, whole_gradient, one = loss_and_gradient(model, sequences(), 10_000)
    split, split_gradient, several = loss_and_gradient(model, sequences(), max_tokens)
    assert one == 1
    assert several > 1
    assert split == pytest.approx(whole, abs=1e-6)
    assert torch.allclose(split_gradient, whole_gradient, atol=1e-6)


def test_loss_does_not_depend_on_the_order_of_sequences() -> None:
    model, rows = tiny_model(), sequences()
    shuffled = rows[::-1]
    assert loss_and_gradient(model, shuffled, 50)[0] == pytest.approx(loss_and_gradient(model, rows, 50)[0], abs=1e-6)


def test_padding_does_not_change_a_sequence() -> None:
    model, rows = tiny_model(), sequences()
    alone = sum(loss_and_gradient(model, [row], 10_000)[0] for row in rows)
    assert loss_and_gradient(model, rows, 10_000)[0] == pytest.approx(alone, abs=1e-6)


def test_logprobs_equal_a_plain_forward_at_the_sequence_temperature() -> None:
    model, row = tiny_model(), sequences()[0]
    (batch,) = micro_batches([row], 1000, 0, "cpu")
    ids = torch.tensor([[*row.prompt_ids, *row.completion_ids]])
    with torch.no_grad():
        reference = torch.log_softmax(model(ids).logits[0] / row.temperature, dim=-1)
    start = len(row.prompt_ids)
    expected = [float(reference[start - 1 + place, token]) for place, token in enumerate(row.completion_ids)]
    assert completion_logprobs(model, batch)[0].detach().tolist() == pytest.approx(expected, abs=1e-5)
