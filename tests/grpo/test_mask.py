"""The conditional truncation mask: every combination of its four conditions."""

import itertools

import pytest

from microcoder_core.grpo.config import MaskConfig, TrainConfig
from microcoder_core.grpo.mask import decide_mask, has_repeating_tail, mask_draw
from microcoder_core.grpo.rollout import Group, Sample, Task
from microcoder_core.grpo.update import score_group, scored_sequences
from microcoder_core.records import Completion, Judgement, Problem, TestCase, Verdict

LIMIT = 8
M = 2


def sample(*, at_limit: bool, verdict: Verdict, repeats: bool) -> Sample:
    tokens = [1, 2, 3, 4, 5, 6, 5, 6] if repeats else [1, 2, 3, 4, 5, 6, 7, 8]
    tokens = tokens if at_limit else tokens[-4:]
    completion = Completion(
        text="",
        token_ids=tuple(tokens),
        finish_reason="length" if at_limit else "stop",
        logprobs=tuple(-1.0 for _ in tokens),
        temperature=1.2,
    )
    return Sample(completion, Judgement(problem_id="p", verdict=verdict))


@pytest.mark.parametrize(("at_limit", "non_incorrect", "no_repeat", "drawn"), list(itertools.product([False, True], repeat=4)))
def test_masked_only_when_all_four_conditions_hold(at_limit: bool, non_incorrect: bool, no_repeat: bool, drawn: bool) -> None:
    one = sample(at_limit=at_limit, verdict=Verdict.ACCEPTED if non_incorrect else Verdict.WRONG_ANSWER, repeats=not no_repeat)
    decision = decide_mask(one, MaskConfig(rho=0.2, repeat_tokens=M), max_new_tokens=LIMIT, draw=0.1 if drawn else 0.9)
    assert decision.is_masked == (at_limit and non_incorrect and no_repeat and drawn)
    assert decision.is_eligible == (at_limit and non_incorrect and no_repeat)


@pytest.mark.parametrize("verdict", Verdict)
def test_eligible_outcomes_are_correct_and_incomplete(verdict: Verdict) -> None:
    one = sample(at_limit=True, verdict=verdict, repeats=False)
    decision = decide_mask(one, MaskConfig(repeat_tokens=M), max_new_tokens=LIMIT, draw=0.0)
    assert decision.is_masked == (verdict in (Verdict.ACCEPTED, Verdict.NO_PROGRAM))


def test_an_end_token_on_the_limit_is_no_truncation() -> None:
    full = sample(at_limit=True, verdict=Verdict.ACCEPTED, repeats=False)
    ended = Sample(full.completion.model_copy(update={"finish_reason": "stop"}), full.judgement)
    assert not decide_mask(ended, MaskConfig(kind="all"), max_new_tokens=LIMIT, draw=0.0).is_masked


@pytest.mark.parametrize(("kind", "masked"), [("none", False), ("all", True)])
def test_the_other_kinds_ask_for_truncation_alone(kind: str, masked: bool) -> None:
    one = sample(at_limit=True, verdict=Verdict.WRONG_ANSWER, repeats=True)
    assert decide_mask(one, MaskConfig.model_validate({"kind": kind}), max_new_tokens=LIMIT, draw=0.9).is_masked is masked


@pytest.mark.parametrize(
    ("tokens", "m", "repeats"),
    [
        ([1, 2, 1, 2], 2, True),
        ([1, 2, 2, 1], 2, False),
        ([2, 1, 2], 2, False),
        ([9, 1, 2, 1, 2], 2, True),
        ([7, 7], 1, True),
        ([], 1, False),
    ],
)
def test_repeating_tail(tokens: list[int], m: int, repeats: bool) -> None:
    assert has_repeating_tail(tokens, m) is repeats


def test_draws_depend_on_run_step_problem_and_sample_only() -> None:
    base = mask_draw(0, 1, "p", 2)
    assert base == mask_draw(0, 1, "p", 2)
    assert len({base, mask_draw(1, 1, "p", 2), mask_draw(0, 2, "p", 2), mask_draw(0, 1, "q", 2), mask_draw(0, 1, "p", 3)}) == 5


def test_draws_are_uniform() -> None:
    draws = [mask_draw(0, step, "p", number) for step in range(100) for number in range(10)]
    assert abs(sum(draw < 0.2 for draw in draws) / 1000 - 0.2) < 0.04


def test_a_masked_output_still_counts_in_its_group_and_in_the_denominator() -> None:
    problem = Problem(problem_id="p", statement="x", form="stdin", tests=(TestCase(input="", expected=""),))
    samples = (
        sample(at_limit=True, verdict=Verdict.ACCEPTED, repeats=False),
        sample(at_limit=False, verdict=Verdict.WRONG_ANSWER, repeats=False),
        sample(at_limit=False, verdict=Verdict.WRONG_ANSWER, repeats=False),
        sample(at_limit=False, verdict=Verdict.ACCEPTED, repeats=False),
    )
    values = {"rollout": {"max_new_tokens": LIMIT}, "mask": {"rho": 1.0, "repeat_tokens": M}}
    config = TrainConfig.model_validate(values)
    scored = score_group(Group(Task(problem, (1,)), samples), config, step=0)
    assert scored.decisions[0].is_masked
    assert scored.advantages[0] == 0
    # mean 1/2 and std 0.57735 include the masked output: without it they would be 1/3 and -0.577, 1.155
    assert scored.advantages[1:] == pytest.approx([-0.8660, -0.8660, 0.8660], abs=1e-4)
    assert {one.weight for one in scored_sequences([scored], config)} == {1 / (8 + 4 + 4 + 4)}
