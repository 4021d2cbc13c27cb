from concurrent.futures import Future

import pytest

from microcoder_core.records import Completion, Judgement, Problem, Verdict
from microcoder_core.stages.rollout_parts import JudgeRewarder


class CountingJudge:
    def __init__(self, verdict: Verdict = Verdict.ACCEPTED) -> None:
        self.programs: list[str | None] = []
        self.verdict = verdict

    def submit(self, problem: Problem, program: str | None) -> Future[Judgement]:
        self.programs.append(program)
        future: Future[Judgement] = Future()
        future.set_result(Judgement(problem_id=problem.problem_id, verdict=self.verdict))
        return future


def answer(text: str) -> Completion:
    return Completion(text=text, token_ids=(2,), finish_reason="stop", temperature=1.0)


def test_a_program_is_judged_once_a_problem(double: Problem, total: Problem) -> None:
    judge = CountingJudge()
    rewarder = JudgeRewarder(judge)  # type: ignore[arg-type]
    for problem in (double, double, total):
        assert rewarder.submit(problem, answer("x = 1")).result().problem_id == problem.problem_id
    rewarder.submit(double, answer("x = 2"))
    assert judge.programs == ["x = 1", "x = 1", "x = 2"]


@pytest.mark.parametrize("verdict", [Verdict.JUDGE_ERROR, Verdict.TIME_LIMIT_EXCEEDED, Verdict.MEMORY_LIMIT_EXCEEDED])
def test_what_load_or_a_failure_may_have_brought_about_is_not_remembered(double: Problem, verdict: Verdict) -> None:
    judge = CountingJudge(verdict)
    rewarder = JudgeRewarder(judge)  # type: ignore[arg-type]
    rewarder.submit(double, answer("x = 1"))
    judge.verdict = Verdict.ACCEPTED
    assert rewarder.submit(double, answer("x = 1")).result().verdict is Verdict.ACCEPTED
