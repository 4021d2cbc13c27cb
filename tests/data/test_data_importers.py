"""Importers on the real files and on rows that are not what they should be."""

import gzip
import json
from collections import Counter

import pytest

from microcoder_core.data.importers import IMPORTERS
from microcoder_core.data.importers.humaneval import import_humaneval
from microcoder_core.data.importers.jsonl import import_jsonl
from microcoder_core.data.importers.mbpp import import_mbpp
from microcoder_core.errors import InputError
from microcoder_core.programs import parses
from microcoder_core.records import Dropped, Problem

HUMANEVAL = {
    "task_id": "HumanEval/900",
    "prompt": 'import math\n\n\ndef helper(x):\n    return x\n\n\ndef f(x):\n    """Return x.\n    >>> f(1)\n    1\n    """\n',
    "entry_point": "f",
    "canonical_solution": "    return helper(x)\n",
    "test": "METADATA = {}\n\n\ndef check(candidate):\n    assert candidate(1) == 1\n",
}
MXEVAL = HUMANEVAL | {"task_id": "MBPP/900", "description": "Return x.", "language": "python"}
GOOGLE = {
    "task_id": 900,
    "text": "Write a function to double.",
    "code": "import math\r\ndef g(y):\r\n  return y\r\ndef f(x, y=1):\r\n  return g(2 * x)",
    "test_list": ["assert f(1) == 2", "assert f(f(0)) == 0"],
    "test_setup_code": "",
    "challenge_test_list": [],
}


def write(file, *rows):
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def imported(records):
    problems = [record for record in records if isinstance(record, Problem)]
    assert len(problems) == len(records), [record for record in records if isinstance(record, Dropped)]
    return problems


@pytest.fixture(scope="module")
def humaneval(shared):
    return imported(list(import_humaneval(str(shared / "data/humaneval/HumanEval.jsonl.gz"))))


@pytest.fixture(scope="module")
def mbpp(shared):
    return imported(list(import_mbpp(str(shared / "data/mbpp/mbpp_release_v1.jsonl.gz"))))


def kept_asserts(problems):
    return [problem.problem_id.split("/")[1] for problem in problems if problem.checker.kind == "asserts"]


def holds_tag(value):
    if isinstance(value, list):
        return any(map(holds_tag, value))
    return isinstance(value, dict) and any(key.startswith("$") or holds_tag(item) for key, item in value.items())


def test_humaneval_is_imported_whole(humaneval):
    assert len({problem.problem_id for problem in humaneval}) == 164
    assert {(problem.licence, problem.date, problem.form) for problem in humaneval} == {("MIT", "2021-07", "function")}
    assert sum(len(problem.tests) for problem in humaneval) == 1100


def test_humaneval_bodies_that_keep_their_asserts(humaneval):
    """Literal arguments and results alone leave 21 bodies.

    Sums of constants (4, 8, 16, 25, 31, 75, 90, 108), tolerances (2), bare asserts (52, 56, 61) and a stray `print` (129) are told too.
    What is left: loops and random inputs (32, 38, 44, 50, 53, 151), `tuple(candidate(..))` (33, 37).
    """
    assert kept_asserts(humaneval) == ["32", "33", "37", "38", "44", "50", "53", "151"]
    assert all(problem.tests for problem in humaneval if problem.checker.kind != "asserts")


def test_humaneval_prompt_is_split_without_loss(humaneval, shared):
    with gzip.open(shared / "data/humaneval/HumanEval.jsonl.gz", "rt") as stream:
        prompts = {row["task_id"]: row["prompt"] for row in map(json.loads, stream)}
    for problem in humaneval:
        prompt = prompts[problem.problem_id]
        assert prompt.strip("\n").startswith(problem.starter_code.rstrip("\n"))
        rest = prompt.strip("\n")[len(problem.starter_code.rstrip("\n")) :]
        docstring = rest.strip()[3:-3]
        assert problem.statement.split() == docstring.split()
        assert parses(problem.reference_solutions[0])


def test_kept_asserts_need_no_program(humaneval):
    """Each one runs against the reference as `candidate`, with nothing of the program in its own namespace."""
    for problem in humaneval:
        if problem.checker.kind == "asserts":
            program, checker = {}, {}
            exec(problem.reference_solutions[0], program)
            exec(problem.checker.code, checker)
            checker["check"](program[problem.entry_point])
            with pytest.raises((AssertionError, TypeError)):
                checker["check"](lambda *_: None)


def test_mbpp_is_imported_whole(mbpp):
    assert len({problem.problem_id for problem in mbpp}) == 974
    assert {(problem.licence, problem.date) for problem in mbpp} == {("CC-BY-4.0", "2021-08")}
    assert not any("assert" in problem.statement or ">>>" in problem.statement for problem in mbpp)


def test_mbpp_bodies_that_keep_their_asserts(mbpp):
    """Objects of the program's own classes (367, 601, 927), 0 for False (414), types as arguments (533)."""
    assert kept_asserts(mbpp) == ["367", "414", "533", "601", "927"]


def test_mbpp_arguments_keep_their_types(mbpp):
    assert sum(any(holds_tag(test.input) for test in problem.tests) for problem in mbpp) == 137


def test_mbpp_checkers(mbpp):
    kinds = Counter((problem.checker.kind, problem.checker.abs) for problem in mbpp)
    assert kinds == {("exact", None): 843, ("float", 1e-6): 63, ("float", 0.0): 63, ("asserts", None): 5}


def test_mbpp_signature_is_the_starter_code(mbpp):
    by_id = {problem.problem_id: problem for problem in mbpp}
    assert by_id["MBPP/1"].starter_code == "def min_cost(cost, m, n):\n"
    assert [problem.problem_id for problem in mbpp if problem.starter_code is None] == ["MBPP/64", "MBPP/966"]  # do not parse


def test_codejam_is_imported_whole(shared):
    problems = imported(list(import_jsonl(str(shared / "data/codejam/codejam.jsonl.gz"))))
    assert len({problem.problem_id for problem in problems}) == 172
    assert not any("\r" in test.input for problem in problems for test in problem.tests)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"prompt": "def f(x:\n"}, "prompt_not_python"),
        ({"prompt": "def f(x):\n    return 1\n"}, "no_statement"),
        ({"entry_point": "g"}, "no_entry_function"),
        ({"test": "def check(candidate:"}, "test_not_python"),
        ({"test": "assert f(1) == 1"}, "no_check_function"),
        ({"test": "def check(f):\n    assert f(1) == 1"}, "no_check_function"),
        ({"test": "def check(candidate):\n    assert True\n    pass"}, "no_tests"),
        ({"test": 5}, "wrong_type"),
        ({"task_id": ""}, "wrong_type"),
    ],
)
def test_humaneval_row_that_is_dropped(tmp_path, change, reason):
    (record,) = import_humaneval(write(tmp_path / "a.jsonl", HUMANEVAL | change))
    assert record.reason == reason
    assert record.record_id in ("HumanEval/900", "line 1")


@pytest.mark.parametrize("field", list(HUMANEVAL))
@pytest.mark.parametrize("form", ["humaneval", "mbpp"])
def test_row_without_a_field_is_dropped(tmp_path, field, form):
    row = MXEVAL if form == "mbpp" else HUMANEVAL
    (record,) = IMPORTERS[form](write(tmp_path / "a.jsonl", {key: value for key, value in row.items() if key != field}))
    assert (record.reason, field in record.detail) == ("missing_field", True)


def test_helpers_of_the_prompt_go_into_the_starter_code(tmp_path):
    (problem,) = import_humaneval(write(tmp_path / "a.jsonl", HUMANEVAL))
    assert problem.starter_code == "import math\n\n\ndef helper(x):\n    return x\n\n\ndef f(x):\n"
    assert problem.statement == "Return x.\n>>> f(1)\n1"


def test_mxeval_row_of_another_language_is_dropped(tmp_path):
    (record,) = import_mbpp(write(tmp_path / "a.jsonl", MXEVAL | {"language": "java"}))
    assert record.reason == "not_python"


def test_mbpp_as_released(tmp_path):
    first, nested = import_mbpp(write(tmp_path / "a.jsonl", GOOGLE | {"test_list": ["assert f(1) == 2"]}, GOOGLE | {"task_id": 901}))
    assert (first.problem_id, first.entry_point, first.starter_code) == ("MBPP/900", "f", "def f(x, y=1):\n")
    assert [(test.input, test.expected) for test in first.tests] == [([1], 2)]
    assert "\r" not in first.reference_solutions[0]
    assert nested.checker.code == "def check(candidate):\n    f = candidate\n    assert f(1) == 2\n    assert f(f(0)) == 0\n"


def test_mbpp_setup_code_runs_before_the_asserts(tmp_path):
    (problem,) = import_mbpp(write(tmp_path / "a.jsonl", GOOGLE | {"test_setup_code": "a = 1\r\nb = 2", "test_list": ["assert f(a) == b"]}))
    namespace = {}
    exec(problem.checker.code, namespace)
    namespace["check"](lambda x: 2 * x)
    with pytest.raises(AssertionError):
        namespace["check"](lambda x: x)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"test_list": []}, "no_tests"),
        ({"test_list": ["assert ("]}, "tests_not_python"),
        ({"test_list": ["assert h(1) == 2"]}, "no_entry_function"),
        ({"test_list": "assert f(1) == 2"}, "wrong_type"),
        ({"code": "def f("}, "code_not_python"),
        ({"text": " "}, "not_a_problem"),
    ],
)
def test_mbpp_row_that_is_dropped(tmp_path, change, reason):
    (record,) = import_mbpp(write(tmp_path / "a.jsonl", GOOGLE | change))
    assert (record.record_id, record.reason) == ("900", reason)


@pytest.mark.parametrize("name", ["humaneval", "mbpp", "jsonl"])
def test_broken_line_stops_the_import(tmp_path, name):
    (tmp_path / "a.jsonl").write_text('{"task_id": \n')
    with pytest.raises(InputError, match=r"a\.jsonl:1: not JSON"):
        list(IMPORTERS[name](str(tmp_path / "a.jsonl")))


def test_windows_line_ends_of_stored_inputs_are_made_plain(tmp_path):
    row = {"problem_id": "a", "statement": "s", "form": "stdin", "tests": [{"input": "1\r\n2\r\n", "expected": "3\r\n"}]}
    (problem,) = import_jsonl(write(tmp_path / "a.jsonl", row))
    assert [(test.input, test.expected) for test in problem.tests] == [("1\n2\n", "3\n")]


@pytest.mark.parametrize("split", ["train", "held_out"])
def test_drills_are_imported(split):
    assert len(imported(list(IMPORTERS["drills"](split)))) >= {"train": 600, "held_out": 150}[split]


def test_unknown_split_of_drills_is_refused():
    with pytest.raises(InputError, match="must be train or held_out"):
        list(IMPORTERS["drills"]("test"))
