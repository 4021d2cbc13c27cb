"""A program is run once a problem, unless what it met may have been bad luck."""

from concurrent.futures import Future
from weakref import ref

import pytest

from microcoder_core.judge.judge import Judge, JudgeConfig
from microcoder_core.judge.verdict_cache import VerdictCache, renamed
from microcoder_core.records import Judgement, Problem, Verdict

RIGHT = "def double(x):\n    return 2 * x\n"


def verdict_of(verdict: Verdict) -> Future[Judgement]:
    future: Future[Judgement] = Future()
    future.set_result(Judgement(problem_id="p", verdict=verdict))
    return future


def test_verdicts_are_kept_by_problem_and_program(double: Problem, total: Problem) -> None:
    cache, right = VerdictCache(2), verdict_of(Verdict.ACCEPTED)
    cache.put(double, "a", right)
    assert cache.get(double, "a") is right
    assert cache.get(double, "b") is None
    assert cache.get(total, "a") is None
    assert cache.get(double.model_copy(), "a") is None  # equal, but nobody has compared them


def test_a_problem_is_not_kept_for_its_verdicts_and_its_id_may_pass_to_another(double: Problem) -> None:
    cache = VerdictCache(2000)
    for number in range(1000):
        passing = double.model_copy(update={"problem_id": str(number)})
        assert cache.get(passing, "a") is None  # though one with this id was there
        cache.put(passing, "a", verdict_of(Verdict.ACCEPTED))
        known = ref(passing)
        del passing
        assert known() is None


def test_the_oldest_goes_first(double: Problem) -> None:
    cache = VerdictCache(2)
    for program in ("a", "b"):
        cache.put(double, program, verdict_of(Verdict.ACCEPTED))
    cache.get(double, "a")
    cache.put(double, "c", verdict_of(Verdict.ACCEPTED))
    assert [program for program in "abc" if cache.get(double, program)] == ["a", "c"]


@pytest.mark.parametrize("verdict", [Verdict.JUDGE_ERROR, Verdict.TIME_LIMIT_EXCEEDED, Verdict.MEMORY_LIMIT_EXCEEDED])
def test_what_load_or_a_failure_may_have_brought_about_is_judged_again(double: Problem, verdict: Verdict) -> None:
    cache = VerdictCache(8)
    cache.put(double, "a", verdict_of(verdict))
    assert cache.get(double, "a") is None


def test_a_verdict_on_its_way_is_waited_for(double: Problem) -> None:
    cache = VerdictCache(8)
    coming: Future[Judgement] = Future()
    cache.put(double, "a", coming)
    known = cache.get(double, "a")
    assert known is coming
    answer = renamed(known, "second")
    coming.set_result(Judgement(problem_id="p", program_id="first", verdict=Verdict.ACCEPTED))
    assert answer.result(timeout=1).program_id == "second"
    assert renamed(coming, None).result(timeout=1).program_id is None


def test_an_abandoned_verdict_is_abandoned_for_all() -> None:
    coming: Future[Judgement] = Future()
    answer = renamed(coming, "x")
    coming.cancel()
    assert answer.cancelled()


def test_the_judge_runs_equal_programs_once(double: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[str] = []
    with Judge(JudgeConfig(workers=2)) as judge:
        graded = judge._judge
        monkeypatch.setattr(judge, "_judge", lambda problem, program: runs.append(program) or graded(problem, program))
        items = [(double, RIGHT, str(number)) for number in range(20)]
        assert [one.program_id for one in judge.judge_many(items)] == [str(number) for number in range(20)]
    assert runs == [RIGHT]


def test_remembering_can_be_turned_off(double: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[str] = []
    with Judge(JudgeConfig(workers=1, remembered_verdicts=0)) as judge:
        graded = judge._judge
        monkeypatch.setattr(judge, "_judge", lambda problem, program: runs.append(program) or graded(problem, program))
        list(judge.judge_many([(double, RIGHT, None)] * 3))
    assert len(runs) == 3


@pytest.mark.parametrize(("order", "passed"), [("cheap_first", [1, 1]), ("killers_first", [1, 0])])
def test_a_test_that_killed_comes_first(double: Problem, order: str, passed: list[int]) -> None:
    wrong = [f"def double(x):\n    return 4  # {number}\n" for number in range(2)]
    with Judge(JudgeConfig(workers=1, order=order)) as judge:
        judgements = [judge.submit(double, program).result() for program in wrong]
        assert [one.tests_passed for one in judgements] == passed
        assert {one.detail for one in judgements} == {"test 2: the answer differs"}
        assert judge.submit(double, RIGHT).result().tests_passed == 2
