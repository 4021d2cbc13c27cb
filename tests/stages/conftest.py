"""What the tests of several stages need."""

from concurrent.futures import Future

import pytest

from microcoder_core.records import Completion, Judgement, Problem, Verdict
from microcoder_core.stages.rollout_parts import JudgeRewarder


@pytest.fixture
def ill_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    """A judge that can grade nothing."""

    def submit(self: JudgeRewarder, problem: Problem, completion: Completion) -> Future[Judgement]:
        verdict: Future[Judgement] = Future()
        verdict.set_result(Judgement(problem_id=problem.problem_id, verdict=Verdict.JUDGE_ERROR, detail="the judge is ill"))
        return verdict

    monkeypatch.setattr(JudgeRewarder, "submit", submit)
