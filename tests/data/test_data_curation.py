"""The rules that curate applies: constraints, overlap, duplicates, verification."""

import gzip
import json
import time
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from pydantic import ValidationError

from microcoder_core.data.constraints import ConstraintConfig, apply_constraints
from microcoder_core.data.duplicates import DuplicateConfig, DuplicateFilter
from microcoder_core.data.importers.humaneval import import_humaneval
from microcoder_core.data.importers.jsonl import import_jsonl
from microcoder_core.data.importers.mbpp import import_mbpp
from microcoder_core.data.overlap import OverlapConfig, OverlapFilter
from microcoder_core.data.text import normalised_statement, plain_text, words
from microcoder_core.data.verify import VerifyConfig, verified
from microcoder_core.records import Checker, Dropped, Judgement, Problem, TestCase, Verdict


def problem(problem_id="a", statement="Print the sum of the numbers.", references=(), wrong=(), inputs=("1",)):
    return Problem(
        problem_id=problem_id,
        statement=statement,
        form="stdin",
        tests=tuple(TestCase(input=text, expected="x") for text in inputs),
        reference_solutions=references,
        wrong_solutions=wrong,
    )


def reason(record):
    return record.reason if isinstance(record, Dropped) else None


def name_of(record):
    return record.record_id if isinstance(record, Dropped) else record.problem_id


def test_markup_scripts_and_styles_are_no_text():
    html = "<html><head><style>p { x }</style></head><body><!-- c --><p class='a'>a &lt; b</p><script>f()</script><br/>c</body></html>"
    assert plain_text(html).split() == ["a", "<", "b", "c"]


def test_comparisons_are_no_markup():
    assert words("if a<b and c>d: x_1 = B") == ["if", "a", "<", "b", "and", "c", ">", "d", "x", "1", "=", "b"]


def test_operators_are_told_apart():
    assert normalised_statement("Keep  x > 3\n") == "keep x > 3" != normalised_statement("keep x < 3")


def test_statement_length_is_bounded():
    config = ConstraintConfig(min_statement_words=3, max_statement_words=5)
    statements = ("a b", "a b c", "a b c d e", "a b c d e f", "?!")
    reasons = [reason(apply_constraints(problem(statement=statement), config)) for statement in statements]
    assert reasons == ["statement_too_short", None, None, "statement_too_long", "statement_too_short"]


@pytest.mark.parametrize(
    ("statement", "is_interactive"),
    [
        ("This is an interactive problem. Guess the number.", True),
        ("<p>Note that this problem is <b>interactive</b>.</p>", True),
        ("Flush after each query, as you interact with the judge.", True),
        ("The interactor answers with <, > or =.", True),
        ("Ann has an interactive map. Print its size.", False),
        ("Two particles interact with the wall. Print when.", False),
    ],
)
def test_interactive_problems_are_refused(statement, is_interactive):
    assert reason(apply_constraints(problem(statement=statement), ConstraintConfig())) == ("interactive" if is_interactive else None)
    assert reason(apply_constraints(problem(statement=statement), ConstraintConfig(interactive="keep"))) is None


def test_no_problem_of_the_public_data_is_taken_for_interactive_but_those_that_are(shared):
    problems = [
        *import_jsonl(str(shared / "data/codejam/codejam.jsonl.gz")),
        *import_humaneval(str(shared / "data/humaneval/HumanEval.jsonl.gz")),
        *import_mbpp(str(shared / "data/mbpp/mbpp_release_v1.jsonl.gz")),
    ]
    assert len(problems) > 1000
    assert [one.problem_id for one in problems if reason(apply_constraints(one, ConstraintConfig())) == "interactive"] == []


def test_too_few_tests_but_asserts_are_one(double):
    config = ConstraintConfig(min_tests=2)
    asserts = double.model_copy(update={"tests": (), "checker": Checker(kind="asserts", code="def check(candidate): ...")})
    assert reason(apply_constraints(problem(), config)) == "too_few_tests"
    assert apply_constraints(asserts, config) is asserts


def test_longest_tests_are_kept_in_their_order():
    kept = apply_constraints(problem(inputs=("1", "333", "22", "1", "4444", "55")), ConstraintConfig(max_tests=4))
    assert [test.input for test in kept.tests] == ["333", "22", "4444", "55"]


def test_all_tests_are_kept_without_a_bound():
    one = problem(inputs=("1",) * 40)
    assert len(apply_constraints(one, ConstraintConfig()).tests) == 15
    assert apply_constraints(one, ConstraintConfig(max_tests=None)) is one


@pytest.mark.parametrize("bounds", [{"min_tests": 20}, {"min_statement_words": 9, "max_statement_words": 8}, {"max_tests": 0}])
def test_bounds_that_no_problem_meets_are_refused(bounds):
    with pytest.raises(ValidationError):
        ConstraintConfig(**bounds)


FIRST = problem("first", "Add two numbers.", references=("def f(a, b):\n    return a + b\n",))


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        (problem("first", "Other."), "duplicate_id"),
        (problem("b", "<p>ADD  two</p> numbers."), "duplicate_statement"),
        (problem("b", "Other.", references=("x = 1\n", "def g(x, y):  # sum\n    'Adds.'\n    return x + y")), "duplicate_reference"),
        (problem("b", "Add three numbers.", references=("def f(a, b):\n    return a - b\n",)), None),
        (problem("b", "Other.", references=("not python", "not python")), None),
    ],
)
def test_duplicates(second, expected):
    rule = DuplicateFilter(DuplicateConfig())
    assert rule(FIRST) is FIRST
    assert reason(rule(second)) == expected


def test_duplicate_rules_can_be_switched_off():
    rule = DuplicateFilter(DuplicateConfig(by_statement=False, by_reference=False))
    rule(FIRST)
    twin = FIRST.model_copy(update={"problem_id": "twin"})
    assert rule(twin) is twin
    assert reason(rule(twin)) == "duplicate_id"


def test_dropped_duplicate_is_not_remembered():
    rule = DuplicateFilter(DuplicateConfig())
    rule(FIRST)
    rule(problem("b", "Add two numbers.", references=("def h(): return 7",)))
    kept = problem("c", "Return seven.", references=("def h(): return 7",))
    assert rule(kept) is kept


LONG = " ".join(f"w{number}" for number in range(40))


@pytest.mark.parametrize(
    ("statement", "references", "expected"),
    [
        ("ADD two  numbers.", (), "overlap_statement"),
        ("Other.", ("def s(x, y): return x + y",), "overlap_reference"),
        (LONG.upper() + " and more", (), "overlap_ngrams"),
        (" ".join(LONG.split()[:21]) + " other" * 40, (), "overlap_ngrams"),  # 6 of 25 16-grams: 0.24
        (" ".join(LONG.split()[:20]) + " other" * 40, (), None),  # 5 of 25: 0.20
        (" ".join(LONG.split()[:10]), (), "overlap_ngrams"),  # short: 3 of 3 8-grams
        (" ".join(LONG.split()[:9]) + " a b c", (), None),  # short: 2 of 5 8-grams
        (" ".join(LONG.split()[:7]), (), None),  # under 8 words: whole or not at all
    ],
)
def test_overlap(statement, references, expected):
    rule = OverlapFilter(OverlapConfig(), [FIRST, problem("long", LONG)])
    assert reason(rule(problem("new", statement, references))) == expected


def test_overlap_rules_can_be_switched_off():
    rule = OverlapFilter(OverlapConfig(by_reference=False, ngram_share=None, short_ngram_share=None), [FIRST, problem("long", LONG)])
    for statement in (LONG + " x", " ".join(LONG.split()[:10])):
        one = problem("new", statement, FIRST.reference_solutions)
        assert rule(one) is one


@pytest.fixture(scope="module")
def humaneval(shared):
    return list(import_humaneval(str(shared / "data/humaneval/HumanEval.jsonl.gz")))


def dropped_count(problems, exclude):
    rule = OverlapFilter(OverlapConfig(by_reference=False), exclude)
    return sum(isinstance(rule(one), Dropped) for one in problems)


def test_rewritten_humaneval_is_found(shared, humaneval):
    with gzip.open(shared / "data/humanevalpack_python/humanevalpack_python.jsonl.gz", "rt") as stream:
        rewritten = [problem(row["task_id"], row["instruction"]) for row in map(json.loads, stream)]
    assert dropped_count(rewritten, humaneval) == 164


def test_contest_boilerplate_is_no_overlap(shared):
    problems = list(import_jsonl(str(shared / "data/codejam/codejam.jsonl.gz")))
    early, late = ([one for one in problems if (one.date < "2022") is first] for first in (True, False))
    assert (len(early), len(late)) == (131, 41)
    assert dropped_count(late, early) == 0


def test_mbpp_and_humaneval_are_told_apart(shared, humaneval):
    mbpp = list(import_mbpp(str(shared / "data/mbpp/mbpp_release_v1.jsonl.gz")))
    assert dropped_count(mbpp, humaneval) == 0
    by_reference = OverlapFilter(OverlapConfig(), humaneval)
    found = [one.problem_id for one in mbpp if isinstance(by_reference(one), Dropped)]
    assert found == ["MBPP/517", "MBPP/792", "MBPP/960"]  # max(..), len(..), Fibonacci


class FakeJudge:
    """Answers with the verdict that is the program's text."""

    def __init__(self):
        self.submitted = []

    def submit(self, problem, program, program_id=None):
        self.submitted.append((problem.problem_id, program_id))
        future = Future()
        verdict = Verdict(program) if program in set(Verdict) else Verdict.WRONG_ANSWER
        future.set_result(Judgement(problem_id=problem.problem_id, program_id=program_id, verdict=verdict, detail="test 0"))
        return future


@pytest.mark.parametrize(
    ("references", "wrong", "expected"),
    [
        (("accepted",), (), None),
        (("accepted",), ("wrong_answer", "time_limit_exceeded"), None),
        (("wrong_answer",), (), "reference_not_accepted"),
        (("time_limit_exceeded", "runtime_error"), ("accepted",), "reference_not_accepted"),
        (("accepted",), ("wrong_answer", "accepted"), "wrong_solution_accepted"),
        (("judge_error",), (), "judge_error"),
        (("accepted",), ("judge_error",), "judge_error"),
        ((), (), None),
        ((), ("accepted",), "wrong_solution_accepted"),
    ],
)
def test_verification(references, wrong, expected):
    (record,) = verified([problem("a", references=references, wrong=wrong)], FakeJudge().submit, VerifyConfig())
    assert reason(record) == expected


def test_dropped_problem_says_which_program_and_verdict():
    (record,) = verified([problem("a", references=("wrong_answer",))], FakeJudge().submit, VerifyConfig())
    assert record.detail == "reference_0: wrong_answer, test 0"


def test_refused_references_are_removed():
    (record,) = verified([problem(references=("wrong_answer", "accepted", "judge"))], FakeJudge().submit, VerifyConfig())
    assert record.reference_solutions == ("accepted",)


def test_verification_can_be_switched_off():
    one = problem(references=("wrong_answer",), wrong=("accepted",))
    judge = FakeJudge()
    assert list(verified([one], judge.submit, VerifyConfig(references=False, wrong_solutions=False))) == [one]
    assert judge.submitted == []


@pytest.mark.parametrize("references", [True, False])
def test_problems_without_reference_can_be_dropped(references):
    config = VerifyConfig(without_reference="drop", references=references)
    records = verified([problem("a"), problem("b", references=("accepted",))], FakeJudge().submit, config)
    assert [reason(record) for record in records] == ["no_reference", None]


def test_order_does_not_depend_on_the_speed_of_the_judge():
    def judged(problem_id, seconds):
        time.sleep(seconds)
        return Judgement(problem_id=problem_id, verdict=Verdict.ACCEPTED)

    records = [
        Dropped(record_id=str(number), reason="no") if number % 3 == 0 else problem(str(number), references=(str(number % 5 / 1000),))
        for number in range(40)
    ]
    with ThreadPoolExecutor(4) as pool:
        records_out = list(
            verified(records, lambda one, program, _: pool.submit(judged, one.problem_id, float(program)), VerifyConfig(window=8))
        )
    assert list(map(name_of, records_out)) == list(map(name_of, records))


@pytest.mark.parametrize(
    ("times_s", "given", "config", "limit"),
    [
        ((0.001, 0.02), None, {}, 1),
        ((0.001, 0.021), None, {}, 2),
        ((0.04,), None, {}, 2),
        ((0.041,), None, {}, None),
        ((0.001,), 3.0, {}, 3),
        ((0.001,), None, {"time_limits": "as_given"}, None),
        ((0.001,), None, {"references": False}, None),
        ((0.001, -9.0), None, {}, 1),  # the second is refused, after 9 s
        ((), None, {}, None),
    ],
)
def test_time_limit_fits_the_slowest_reference(times_s, given, config, limit):
    def submit(one, program, program_id=None):
        verdict = Verdict.ACCEPTED if float(program) > 0 else Verdict.WRONG_ANSWER
        future = Future()
        future.set_result(Judgement(problem_id=one.problem_id, verdict=verdict, time_s=abs(float(program))))
        return future

    one = problem(references=tuple(map(str, times_s))).model_copy(update={"time_limit_s": given})
    (record,) = verified([one], submit, VerifyConfig(**config))
    assert record.time_limit_s == limit


def test_waiting_problems_are_bounded():
    waiting = set()
    most = 0

    class Asked(Future):
        """Is never done by itself: the answer comes when it is asked for."""

        def result(self, timeout=None):
            waiting.remove(self)
            return Judgement(problem_id="x", verdict=Verdict.ACCEPTED)

    def submit(problem, program, program_id=None):
        nonlocal most
        future = Asked()
        waiting.add(future)
        most = max(most, len(waiting))
        return future

    records = [problem(str(number), references=("r",)) for number in range(30)]
    assert list(map(name_of, verified(records, submit, VerifyConfig(window=8)))) == list(map(name_of, records))
    assert (most, waiting) == (9, set())
