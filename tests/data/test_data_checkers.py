"""Checkers are proposed where statement or references ask for one, and nowhere else."""

import json

import pytest

from microcoder_core.cli.main import main
from microcoder_core.data.checkers import propose
from microcoder_core.judge.judge import Judge, JudgeConfig
from microcoder_core.records import Checker, Problem, TestCase
from microcoder_core.storage.datasets import export_jsonl, read_manifest, read_problems


def stdin(statement="Print it.", tests=(("1\n", "1 2\n"),), kind="auto", references=()):
    cases = tuple(TestCase(input=given, expected=expected) for given, expected in tests)
    return Problem(
        problem_id="p", statement=statement, form="stdin", tests=cases, checker=Checker(kind=kind), reference_solutions=references
    )


@pytest.mark.parametrize(
    ("phrase", "tolerances"),
    [
        ("Answers within an absolute or relative error of 10^-6 are accepted.", (1e-6, 1e-6)),
        ("with absolute or relative error of at most 1e-9", (1e-9, 1e-9)),
        ("relative or absolute error not exceeding $10^{-4}$", (1e-4, 1e-4)),
        ("the absolute error must be at most 0.001", (1e-3, 0)),
        ("<p>a relative error of 10<sup>-5</sup></p>", (0, 1e-5)),
        ("an absolute or relative error of 10\u22126", (1e-6, 1e-6)),
        ("an absolute or relative error of 10^\u22126", (1e-6, 1e-6)),
    ],
)
def test_a_stated_tolerance_is_taken(phrase, tolerances):
    proposal = propose(stdin(f"Find x. {phrase}"))
    found = proposal and (proposal.checker.abs, proposal.checker.rel)
    assert found == tolerances


@pytest.mark.parametrize(
    ("statement", "tests", "kind"),
    [
        ("Print the numbers in any order.", (("1\n", "1 2\n"),), "unordered_tokens"),
        ("You may print them in any order.", (("1\n", "1\n2\n"),), "unordered_tokens"),
        ("Output the pairs, in any order.", (("1\n", "1 2\n3 4\n"),), "unordered_lines"),
        ("Do not print in any order; print sorted.", (("1\n", "1 2\n"),), None),
        ("You may give the input in any order, but print the answer sorted.", (("1\n", "1 2\n"),), None),
        ("Print the maximum size of any valid subset.", (("1\n", "2\n"),), None),
        ("Return the length of the longest subsequence of any valid string.", (("1\n", "2\n"),), None),
        ("Print the number of permutations of any possible length.", (("1\n", "2\n"),), None),
        ("The absolute error between x and 0.01 is the answer.", (("1\n", "2\n"),), None),
        ("With absolute error of 10^-400.", (("1\n", "2\n"),), None),
        ("With absolute error of 10^-6.", (("1\n", "abc\n"),), None),
        ("Print YES or NO, in any case.", (("1\n", "YES\n"), ("2\n", "NO\n")), "yesno"),
        ("The operations may be done in any order. Print the sum.", (("1\n", "1 2\n"),), None),
        ("Print the number in any order you like.", (("1\n", "7\n"),), None),
        ("Print the name, in any case.", (("1\n", "Bob\n"),), None),
        ("Print the sum.", (("1\n", "3\n"),), None),
    ],
)
def test_the_statement_says_what_is_free_in_the_answer(statement, tests, kind):
    proposal = propose(stdin(statement, tests))
    assert (proposal and proposal.checker.kind) == kind


@pytest.mark.parametrize("statement", ["If there are several answers, print any of them.", "Output any valid permutation."])
def test_several_right_answers_need_a_checker_of_their_own(statement):
    proposal = propose(stdin(statement))
    assert proposal is not None
    assert proposal.checker is None


def test_a_checker_that_somebody_chose_is_left_alone():
    assert propose(stdin("Print them in any order.", kind="unordered_lines")) is None


@pytest.fixture(scope="module")
def submit():
    with Judge(JudgeConfig(workers=1)) as judge:
        yield judge.submit


@pytest.mark.parametrize(
    ("program", "expected", "kind"),
    [
        ("print(1, 2)", "1 2\n", None),
        ("print(2, 1)", "1 2\n", "unordered_tokens"),
        ("print(0.1 + 0.2)", "0.3\n", None),  # auto compares reals with a tolerance as it is
        ("print(1, 3)", "1 2\n", None),
    ],
)
def test_references_that_differ_by_order_ask_for_a_looser_checker(submit, program, expected, kind):
    proposal = propose(stdin(tests=(("", expected),), references=(program,)), submit)
    assert (proposal and proposal.checker.kind) == kind
    if proposal:
        assert "by order" in proposal.reason


def test_references_that_differ_by_rounding_ask_for_a_tolerance(submit):
    proposal = propose(stdin(tests=(("", "0.3\n"),), kind="tokens", references=("print(0.1 + 0.2)",)), submit)
    assert (proposal.checker.kind, proposal.source) == ("float", "references")


def test_codejam_s_tolerances_are_found_and_nothing_else(shared):
    problems = list(read_problems(shared / "data/codejam/codejam.jsonl.gz"))
    proposals = [one for one in map(propose, problems) if one]
    assert len(proposals) == 13
    assert {(one.checker.kind, one.checker.abs, one.checker.rel) for one in proposals} == {("float", 1e-6, 1e-6)}


def test_the_command_writes_the_data_set_with_the_proposals(tmp_path, capsys):
    rows = [stdin("Print them in any order."), stdin("Print any of them."), stdin("Print it.")]
    export_jsonl([row.model_copy(update={"problem_id": str(number)}) for number, row in enumerate(rows)], tmp_path / "d.jsonl")
    with pytest.raises(SystemExit, match="0"):
        main(["judge", "checker", str(tmp_path / "d.jsonl"), "--out", str(tmp_path / "d"), "--no-references"])
    shown = capsys.readouterr().out
    assert "0: auto -> unordered_tokens: print them in any order" in shown
    assert "2 proposals for 3 problems" in shown
    assert [problem.checker.kind for problem in read_problems(tmp_path / "d")] == ["unordered_tokens", "auto"]
    assert read_manifest(tmp_path / "d").dropped == {"several_answers": 1}
    with pytest.raises(SystemExit, match="0"):
        main(["judge", "checker", str(tmp_path / "d.jsonl"), "--no-references", "--json"])
    assert [json.loads(line)["problem_id"] for line in capsys.readouterr().out.splitlines()] == ["0", "1"]
