"""Weak tests and loose checkers are found; good ones are left alone."""

import json
from pathlib import Path

import pytest

from microcoder_core.cli.main import main
from microcoder_core.data.importers import IMPORTERS
from microcoder_core.judge.audit import audit, lazy_answers
from microcoder_core.judge.judge import Judge
from microcoder_core.records import Checker, Problem, TestCase
from microcoder_core.storage.datasets import export_jsonl


def stdin(*tests: tuple[str, str], kind: str = "auto", statement: str = "s", **fields: object) -> Problem:
    cases = tuple(TestCase(input=given, expected=expected) for given, expected in tests)
    return Problem(problem_id="p", statement=statement, form="stdin", tests=cases, checker=Checker(kind=kind), **fields)


def function(*tests: tuple[list[object], object], kind: str = "exact", **fields: object) -> Problem:
    cases = tuple(TestCase(input=given, expected=expected) for given, expected in tests)
    fields = {"statement": "s"} | fields
    return Problem(problem_id="p", form="function", entry_point="f", tests=cases, checker=Checker(kind=kind), **fields)


def found(judge: Judge, problem: Problem) -> set[str]:
    (result,) = audit([problem], judge)
    return {answer.name for answer in result.accepted}


@pytest.mark.parametrize(
    ("problem", "names"),
    [
        (stdin(("1 2\n", "3\n"), ("2 2\n", "4\n")), set()),
        (stdin(("3 1\n", "YES\n"), ("2 2\n", "YES\n")), {"constant"}),
        (stdin(("3 1\n", "3\n"), ("2 9\n", "2\n")), {"first_token"}),
        (stdin(("3 1\n", "3 1\n"), ("2\n", "2\n")), {"echo"}),
        (stdin(("x\n", "\n"), ("y\n", "\n")), {"empty", "constant"}),
        (stdin(("1 2\n", "3\n"), statement="Input: 1 2 Output: 3"), {"constant", "samples"}),
        (stdin(("1 2\n", "3\n"), ("5 5\n", "10\n"), statement="Input: 1 2 Output: 3"), set()),
        (stdin(("1\n", "1 2\n"), ("2\n", "3 4\n"), kind="unordered_tokens"), set()),
        (stdin(("1\n", "yes\n"), ("2\n", "no\n")), set()),
        (stdin(("1\n", "0.5\n"), ("2\n", "0.25\n")), set()),
        (function(([1], 2), ([5], 10)), set()),
        *((function(([1], [one]), ([5], [other]), kind="auto"), set()) for one, other in ((1, 2), (0.5, 0.25), ([1], [2]), (True, False))),
        (function(([1], 2), ([5], 10), kind="auto"), set()),
        (stdin(("1\n", "9" * 5000 + "\n"), ("2\n", "8" * 5000 + "\n")), set()),
        (function(([1], 2), ([5], 2)), {"constant"}),
        (function(([1], 1), ([5], 5)), {"echo"}),
        (function(([1], [1, 2]), ([5], [3, 4]), kind="unordered"), set()),
        (function(([1], {"$tuple": [1, 2]}), ([5], {"$set": [3, 4]})), set()),
        (function(([2], 4), statement="f(2) is 4"), {"constant", "samples"}),
        (function(([1], 2), ([5], 10), wrong_solutions=("def f(x): return x", "def f(x): return x + x")), {"wrong_solution"}),
    ],
)
def test_a_problem_is_weak_where_a_lazy_answer_is_accepted(judge: Judge, problem: Problem, names: set[str]) -> None:
    assert found(judge, problem) == names


@pytest.mark.parametrize(
    ("spoilt", "checker"),
    [
        ("permuted", "def check(i, e, o): return sorted(e.split()) == sorted(o.split())"),
        ("case_swapped", "def check(i, e, o): return e.lower() == o.lower()"),
        ("off_by_one", "def check(i, e, o): return abs(int(o.split()[-1]) - int(e.split()[-1])) <= 1"),
    ],
)
def test_spoilt_answers_are_tried_on_what_compares_and_not_on_a_problem_s_own_checker(judge: Judge, spoilt: str, checker: str) -> None:
    tests = (("1\n", "a B 3\n"), ("2\n", "c D 40\n"))
    assert spoilt in {answer.name for answer in lazy_answers(stdin(*tests))}
    own = stdin(*tests).model_copy(update={"checker": Checker(kind="program", code=checker)})
    assert spoilt not in {answer.name for answer in lazy_answers(own)}
    assert found(judge, own) == set()


def test_asserts_are_tried_with_blind_answers(judge: Judge) -> None:
    checker = Checker(kind="asserts", code="def check(c):\n    assert not c([])\n")
    weak = Problem(problem_id="p", statement="s", form="function", entry_point="f", tests=(), checker=checker)
    assert found(judge, weak) >= {"constant", "echo"}


def test_the_command_names_weak_problems_and_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    strong = stdin(("1 2\n", "3\n"), ("2 2\n", "4\n")).model_copy(update={"problem_id": "strong"})
    export_jsonl([stdin(("3 1\n", "YES\n")), strong], tmp_path / "d.jsonl")
    with pytest.raises(SystemExit, match="0"):
        main(["judge", "audit", str(tmp_path / "d.jsonl"), "--out", str(tmp_path / "weak.jsonl")])
    shown = capsys.readouterr().out
    assert "1 of 2 problems" in shown
    assert "answers 'YES\\n' always" in shown
    (row,) = [json.loads(line) for line in (tmp_path / "weak.jsonl").read_text().splitlines()]
    assert (row["problem_id"], [one["name"] for one in row["accepted"]]) == ("p", ["constant"])


PUBLIC = {
    "humaneval": ("humaneval/HumanEval.jsonl.gz", 3),
    "mbpp": ("mbpp/mbpp_release_v1.jsonl.gz", 11),
    "jsonl": ("codejam/codejam.jsonl.gz", 29),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLIC)
def test_weak_problems_of_public_sets_are_those_that_the_documents_count(judge: Judge, shared: Path, name: str) -> None:
    file, weak = PUBLIC[name]
    problems = [problem for problem in IMPORTERS[name](str(shared / "data" / file)) if isinstance(problem, Problem)]
    assert sum(bool(result.accepted) for result in audit(problems, judge)) == weak
