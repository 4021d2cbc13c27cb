import re
from pathlib import Path

import pytest

from microcoder_core.grpo.mask import MaskDecision
from microcoder_core.grpo.metrics import METRICS, rollout_metrics
from microcoder_core.grpo.rollout import Group, Sample
from microcoder_core.records import Completion, Judgement, Verdict
from tests.tiny import tiny_tasks


def test_the_documented_table_is_the_code_s() -> None:
    text = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert dict(re.findall(r"^\| `(.+?)` \| (.+) \|$", text, re.MULTILINE)) == METRICS


def groups(*verdicts: Verdict) -> list[Group]:
    samples = [
        Sample(
            Completion(text="", token_ids=(2,) * length, finish_reason="stop", logprobs=(-0.5,) * length, temperature=1),
            Judgement(problem_id="p", verdict=verdict),
        )
        for length, verdict in enumerate(verdicts, start=1)
    ]
    return [Group(tiny_tasks(1)[0], tuple(samples))]


def measure(rewards: list[float | None], *verdicts: Verdict) -> dict[str, float]:
    nothing = [MaskDecision(False, False)] * len(verdicts)
    return rollout_metrics(groups(*verdicts), [rewards], nothing, [False] * len(verdicts))


def test_shares_and_lengths_by_hand() -> None:
    metrics = measure([1.0, 0.0, 0.0, None], Verdict.ACCEPTED, Verdict.NO_PROGRAM, Verdict.WRONG_ANSWER, Verdict.JUDGE_ERROR)
    assert metrics["completions/mean_length"] == 2.5
    assert metrics["entropy"] == 0.5
    assert metrics["reward"] == pytest.approx(1 / 3)
    assert metrics["microcoder/pass_at_1"] == pytest.approx(1 / 3)  # the ungraded one is no wrong one
    assert metrics["microcoder/outcome_incomplete_frac"] == metrics["microcoder/outcome_ungraded_frac"] == 0.25
    assert metrics["frac_reward_zero_std"] == 0


def test_numbers_that_do_not_exist_are_left_out() -> None:
    metrics = measure([None], Verdict.JUDGE_ERROR)
    assert not {"reward", "reward_std", "microcoder/pass_at_1"} & set(metrics)
