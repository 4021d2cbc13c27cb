import math
from collections import Counter

import pytest
import torch

from microcoder_core.records import Completion
from microcoder_core.sampling.base import prompt_seeds
from microcoder_core.sampling.transformers_sampler import TransformersSampler
from tests.ratios import worst_difference
from tests.tiny import TinyTokenizer, tiny_model

PROMPTS = [(5, 6, 7), (9,), (4, 4, 4, 4, 4, 4)]


def sampler(**options: int) -> TransformersSampler:
    return TransformersSampler(tiny_model(), TinyTokenizer(), **options)


def sample(one: TransformersSampler, temperature: float = 1.2, **changes: object) -> list[list[Completion]]:
    settings = {"group_size": 6, "max_new_tokens": 24, "seeds": prompt_seeds((0, 1), 3)} | changes
    return one.sample(PROMPTS, temperature=temperature, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("temperature", [0.6, 1.2, 1.8])
def test_the_ratio_of_fresh_samples_is_one(temperature: float) -> None:
    one = sampler()
    assert worst_difference(one.model, PROMPTS, sample(one, temperature)) < 1e-4


def test_same_seed_same_completions_and_another_seed_others() -> None:
    first = sample(sampler())
    assert first == sample(sampler())
    assert first != sample(sampler(), seeds=prompt_seeds((0, 2), 3))


def test_draws_do_not_depend_on_how_rows_are_batched() -> None:
    ids = [[completion.token_ids for completion in group] for group in sample(sampler())]
    assert ids == [[completion.token_ids for completion in group] for group in sample(sampler(max_rows=6))]


def test_finish_reason_is_stop_exactly_when_the_last_token_ends() -> None:
    completions = [completion for group in sample(sampler(), group_size=20) for completion in group]
    assert {completion.finish_reason for completion in completions} == {"stop", "length"}
    for completion in completions:
        assert (completion.finish_reason == "stop") == (completion.token_ids[-1] == 1)
        assert 1 not in completion.token_ids[:-1]
        assert len(completion.token_ids) == len(completion.logprobs or ()) <= 24
        assert completion.finish_reason == "stop" or len(completion.token_ids) == 24


def test_every_completion_is_handed_over_once_when_it_ends() -> None:
    seen = {}

    def note(prompt: int, number: int, completion: Completion) -> None:
        assert (prompt, number) not in seen
        seen[prompt, number] = completion

    groups = sample(sampler(), on_finished=note)
    assert seen == {(prompt, number): one for prompt, group in enumerate(groups) for number, one in enumerate(group)}


def test_samples_follow_the_model_distribution_at_the_temperature() -> None:
    one = sampler()
    groups = one.sample([(5, 6, 7)], group_size=4000, temperature=1.8, max_new_tokens=1, seeds=[(3,)])
    counts = Counter(completion.token_ids[0] for completion in groups[0])
    with torch.no_grad():
        expected = torch.softmax(one.model(torch.tensor([[5, 6, 7]])).logits[0, -1] / 1.8, dim=-1)
    for token, probability in enumerate(expected.tolist()):
        deviation = math.sqrt(probability * (1 - probability) / 4000)
        assert abs(counts[token] / 4000 - probability) < 5 * deviation


def test_greedy_takes_the_likeliest_token_and_records_no_logprobs() -> None:
    one = sampler()
    groups = sample(one, temperature=0, group_size=2)
    with torch.no_grad():
        assert groups[1][0].token_ids[0] == int(one.model(torch.tensor([[9]])).logits[0, -1].argmax())
    assert groups[0][0] == groups[0][1]
    assert groups[0][0].logprobs is None


def test_sampling_leaves_the_training_mode_as_it_was() -> None:
    one = sampler()
    one.model.train()
    sample(one)
    assert one.model.training
