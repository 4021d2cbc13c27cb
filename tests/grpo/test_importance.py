"""Samplers that do not share the trained model: their weights are followed, corrected for, and missed when they are stale."""

import copy
from collections.abc import Iterable
from concurrent.futures import Future

import pytest
import torch

from microcoder_core.errors import TrainingError
from microcoder_core.grpo.policy import can_share_rows
from microcoder_core.grpo.trainer import Trainer
from microcoder_core.records import Completion, Judgement, Problem, Verdict
from microcoder_core.sampling.transformers_sampler import TransformersSampler
from tests.tiny import EvenRewarder, TinyTokenizer, tiny_config, tiny_model, tiny_tasks


class Copying(TransformersSampler):
    """Samples from a model of its own, to which weights are sent."""

    shares_model = False

    def update_weights(self, weights: Iterable[tuple[str, torch.Tensor]], policy_version: int) -> None:
        self.model.load_state_dict(dict(weights))
        super().update_weights((), policy_version)


class Stale(Copying):
    """Says that it has the weights, and keeps the old ones."""

    def update_weights(self, weights: Iterable[tuple[str, torch.Tensor]], policy_version: int) -> None:
        TransformersSampler.update_weights(self, (), policy_version)


def train(kind: type[TransformersSampler], **changes: object) -> Trainer:
    torch.set_num_threads(1)
    model = tiny_model()
    sampler = kind(model if kind is TransformersSampler else copy.deepcopy(model), TinyTokenizer())
    one = Trainer(tiny_config(**changes), model=model, pad_id=0, tasks=tiny_tasks(), sampler=sampler, rewarder=EvenRewarder())
    one.train()
    return one


def test_a_sampler_that_follows_gives_the_curve_of_one_that_shares() -> None:
    shared, copied = train(TransformersSampler), train(Copying)
    for one, other in zip(shared.history, copied.history, strict=True):
        assert other["loss"] == pytest.approx(one["loss"], abs=1e-4)
        assert other["sampling/sampling_logp_difference/max"] < 1e-4
        assert other["sampling/importance_sampling_ratio/mean"] == pytest.approx(1, abs=1e-4)


def test_stale_weights_stop_the_training_before_a_step_is_taken() -> None:
    with pytest.raises(TrainingError, match=r"update \d+: the sampler's log-probabilities differ .*loss.max_logprob_difference .0.02."):
        train(Stale, loss={"max_logprob_difference": 0.02})


def test_importance_is_capped_and_counts_only_where_it_is_corrected_for() -> None:
    """The sampler's policy lags, so that its tokens are more or less likely by the trainer than it says."""
    loose = {"max_logprob_difference": 100.0}
    plain = train(Stale, loss={**loose, "importance_correction": "none"})
    capped = train(Stale, loss={**loose, "importance_cap": 1.0})
    corrected = train(Stale, loss={**loose, "importance_cap": 100.0})
    assert plain.history[0]["loss"] == pytest.approx(corrected.history[0]["loss"], abs=1e-6)  # the first rollout is from equal weights
    losses = [one.history[-1]["loss"] for one in (plain, capped, corrected)]
    assert len({round(loss, 4) for loss in losses}) == 3


def test_old_log_probabilities_of_later_updates_are_those_before_the_first() -> None:
    """Two updates a rollout: the ratio of the second is to the policy that sampled, not to the one that the first update made."""
    corrected = train(Copying, optimizer={"learning_rate": 3e-2})
    recorded = train(Copying, optimizer={"learning_rate": 3e-2}, loss={"importance_correction": "none"})
    assert corrected.history[0]["loss"] == pytest.approx(recorded.history[0]["loss"], abs=1e-5)
    assert sum(one["clip_ratio/high_mean"] + one["clip_ratio/low_mean"] for one in corrected.history) > 0


def test_a_later_update_without_any_advantage_is_no_obstacle() -> None:
    class Never(EvenRewarder):
        def submit(self, problem: Problem, completion: Completion) -> Future[Judgement]:
            future: Future[Judgement] = Future()
            future.set_result(Judgement(problem_id=problem.problem_id, verdict=Verdict.WRONG_ANSWER))
            return future

    model = tiny_model()
    sampler = Copying(copy.deepcopy(model), TinyTokenizer())
    one = Trainer(tiny_config(), model=model, pad_id=0, tasks=tiny_tasks(), sampler=sampler, rewarder=Never())
    one.train()
    assert [metrics["microcoder/update_skipped_frac"] for metrics in one.history] == [1.0] * 4


@pytest.mark.parametrize("change", [{"_attn_implementation": "eager"}, {"sliding_window": 8}, {"layer_types": ["linear_attention"]}])
def test_rows_are_shared_only_where_attention_is_plain(change: dict[str, object]) -> None:
    model = tiny_model()
    assert can_share_rows(model)
    for name, value in change.items():
        setattr(model.config, name, value)
    assert not can_share_rows(model)
