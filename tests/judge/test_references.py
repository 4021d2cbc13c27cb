"""Known right and known wrong programs of HumanEval, HumanEvalPack and MBPP."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from microcoder_core.data.importers.humaneval import import_humaneval
from microcoder_core.data.importers.mbpp import import_mbpp
from microcoder_core.judge.judge import Judge, JudgeConfig
from microcoder_core.records import Judgement, Problem, Verdict
from microcoder_core.storage.rows import read_rows

KNOWN_BAD = {56, 64, 123, 160, 341, 349, 367, 596, 601, 607, 631, 642, 899, 927, 966, 967}
"""MBPP references that fail or hang as released."""
GOOD_HERE = {
    56: "a function named check, which the released test's own check replaces",
    123: "slow: 2.5 s of CPU time",
    341: "hangs on the order of a set, which depends on how the set is built",
    349: "named check",
    899: "named check",
    967: "named check",
}


@pytest.fixture(scope="module")
def patient_judge() -> Iterator[Judge]:
    """The judge with limits for programs that a person wrote: MBPP/123 needs its time, wrong versions that loop need little."""
    with Judge(JudgeConfig(workers=2, time_limit_s=8.0)) as running:
        yield running


def verdicts(judge: Judge, items: list[tuple[Problem, str, str | None]]) -> dict[str, Judgement]:
    return {judgement.problem_id: judgement for judgement in judge.judge_many(items)}


@pytest.fixture(scope="module")
def humaneval(shared: Path) -> dict[str, Problem]:
    records = import_humaneval(str(shared / "data/humaneval/HumanEval.jsonl.gz"))
    return {record.problem_id: record for record in records if isinstance(record, Problem)}


def test_humaneval_references_are_all_accepted(judge: Judge, humaneval: dict[str, Problem]) -> None:
    found = verdicts(judge, [(problem, problem.reference_solutions[0], None) for problem in humaneval.values()])
    assert len(found) == 164
    assert [(name, each.detail) for name, each in found.items() if each.verdict is not Verdict.ACCEPTED] == []


def test_humanevalpack_wrong_versions_are_none_accepted(judge: Judge, humaneval: dict[str, Problem], shared: Path) -> None:
    rows = read_rows(shared / "data/humanevalpack_python/humanevalpack_python.jsonl.gz")
    items = [
        (
            humaneval[row["task_id"].replace("Python/", "HumanEval/")].model_copy(update={"time_limit_s": 1.0}),
            row["declaration"] + row["buggy_solution"],
            None,
        )
        for _, row in rows
    ]
    found = verdicts(judge, items)
    assert len(found) == 164
    wrong = {Verdict.WRONG_ANSWER, Verdict.RUNTIME_ERROR, Verdict.TIME_LIMIT_EXCEEDED}
    assert [(name, each.detail) for name, each in found.items() if each.verdict not in wrong] == []


def test_mbpp_references_are_accepted_but_for_the_known_bad_ones(patient_judge: Judge, shared: Path) -> None:
    records = import_mbpp(str(shared / "data/mbpp/mbpp_release_v1.jsonl.gz"))
    problems = [record for record in records if isinstance(record, Problem)]
    found = verdicts(patient_judge, [(problem, problem.reference_solutions[0], None) for problem in problems])
    refused = {int(name.split("/")[1]) for name, each in found.items() if each.verdict is not Verdict.ACCEPTED}
    assert len(found) == 974
    assert refused == KNOWN_BAD - GOOD_HERE.keys()
