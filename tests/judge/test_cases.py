"""The public cases of evaluators that got it wrong: every one must be judged right."""

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from microcoder_core.judge.judge import Judge
from microcoder_core.records import Checker, Problem, TestCase
from tests.processes import groups_of_this_process, workers_of

CASES = Path(__file__).resolve().parents[3] / "shared" / "cases" / "judge.jsonl"
ROWS: list[dict[str, Any]] = [json.loads(line) for line in CASES.read_text().splitlines()] if CASES.exists() else []
VERDICTS = {
    "pass": {"accepted"},
    "fail": {"wrong_answer", "output_limit_exceeded"},
    "timeout": {"time_limit_exceeded"},
    "memory": {"memory_limit_exceeded"},
    "runtime_error": {"runtime_error"},
    "compile_error": {"compile_error"},
}
ALSO_RIGHT = {  # what the case's own note allows
    "output-flood-infinite": "time_limit_exceeded",
    "fork-bomb": "time_limit_exceeded",
    "fn-huge-result": "memory_limit_exceeded",
}
KINDS = {"exact_rstrip": "exact", "python": "program"}


def problem_of(row: dict[str, Any]) -> Problem:
    is_stdin = row["problem_type"] == "stdin"
    declared = row.get("checker") or {"type": "tokens" if is_stdin else "exact"}
    kind = KINDS.get(declared["type"], declared["type"])
    tolerances = {key: declared[key] for key in ("abs", "rel") if key in declared and kind == "float"}
    limits = row.get("limits") or {}
    tests = [
        TestCase(input=test["input"].replace("\r\n", "\n") if is_stdin else json.loads(test["input"]), expected=test["expected"])
        for test in row["tests"]
    ]
    return Problem(
        problem_id=row["id"],
        statement=row["note"],
        form=row["problem_type"],
        entry_point=None if is_stdin else row["fn_name"],
        tests=tuple(tests),
        checker=Checker(kind=kind, code=declared.get("code"), **tolerances),
        # The cases assume 2 s. A busy machine counts more CPU time for the same work, so only what should run out of time has less.
        time_limit_s=1.0 if row["right_verdict"] == "timeout" else 6.0,
        memory_limit_mib=limits.get("memory_mb", 1024),
    )


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """A judge that, all cases done, has left no file, no process and no control group."""
    scratch = tmp_path_factory.mktemp("scratch")
    before = set(workers_of(os.getpid()))
    groups = groups_of_this_process()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(scratch))
        with Judge() as judge:
            yield judge
            assert set(workers_of(os.getpid())) > before
    assert set(workers_of(os.getpid())) == before
    assert list(scratch.iterdir()) == []
    assert groups_of_this_process() == groups


@pytest.mark.parametrize(
    "row", [pytest.param(row, id=row["id"], marks=[pytest.mark.dangerous] if row.get("danger") else []) for row in ROWS]
)
def test_case_is_judged_right(judge: Judge, row: dict[str, Any]) -> None:
    judgement = judge.submit(problem_of(row), row["code"]).result(timeout=60)
    right = VERDICTS[row["right_verdict"]] | {ALSO_RIGHT.get(row["id"], "")}
    assert judgement.verdict in right, judgement.detail


def test_all_cases_are_there(shared: Path) -> None:
    assert shared.is_dir()
    assert len(ROWS) == 149
