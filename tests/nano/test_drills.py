import hashlib

import pytest

from microcoder_core.data.drills import Drill, drill_problems, drills
from microcoder_core.data.drills.cases import killed_by
from microcoder_core.data.drills.steps import Code, apply
from microcoder_core.data.drills.styles import loop, nested, stepwise
from microcoder_core.judge.config import JudgeConfig
from microcoder_core.judge.judge import Judge
from microcoder_core.programs import normalised_program
from microcoder_core.records import Problem, Verdict

DRILLS_SHA256 = "c9bbc45c221ddd22bed51eefa26a77e2bdda8ae5acc12f3cc57ed99d8d91348f"
FILTER, DOUBLE, FIRST = Code("filter", "x > 3"), Code("map", "x * 2"), Code("whole", "{}[:2]")


def sound(split: str) -> list[Drill]:
    return [drill for drill in drills(split) if drill.planted is None]


def references(problem: Problem) -> set[str | None]:
    return {normalised_program(program) for program in problem.reference_solutions}


def test_counts_leave_what_the_demo_needs() -> None:
    assert len(sound("train")) >= 600
    assert len(drills("held_out")) >= 150
    assert {drill.problem.difficulty for drill in drills("held_out")} == {"easy", "medium", "hard"}


def test_drills_are_the_recorded_ones() -> None:
    rows = "\n".join(problem.model_dump_json() for split in ("train", "held_out") for problem in drill_problems(split))
    assert hashlib.sha256(rows.encode()).hexdigest() == DRILLS_SHA256


def test_no_sound_training_drill_has_a_reference_of_a_held_out_one() -> None:
    held_out = {form for problem in drill_problems("held_out") for form in references(problem)}
    assert not [drill for drill in sound("train") if references(drill.problem) & held_out]


def test_no_two_sound_drills_share_a_first_reference() -> None:
    firsts = [normalised_program(drill.problem.reference_solutions[0]) for split in ("train", "held_out") for drill in sound(split)]
    assert len(set(firsts)) == len(firsts)


def test_planted_drills_are_what_they_claim() -> None:
    held_out = {normalised_program(problem.reference_solutions[0]) for problem in drill_problems("held_out")}
    train = {normalised_program(drill.problem.reference_solutions[0]) for drill in sound("train")}
    for drill in drills("train"):
        first = normalised_program(drill.problem.reference_solutions[0])
        if drill.planted in ("overlap", "duplicate"):
            assert first in (held_out if drill.planted == "overlap" else train)


def test_every_word_of_a_held_out_statement_occurs_in_training() -> None:
    words = {word.strip(".,;:") for problem in drill_problems("train") for word in problem.statement.split()}
    assert {word.strip(".,;:") for problem in drill_problems("held_out") for word in problem.statement.split()} <= words


@pytest.mark.parametrize("style", [nested, stepwise, loop])
def test_styles_agree(style) -> None:
    scope: dict = {}
    exec(style([FILTER, DOUBLE, FIRST]), scope)
    assert scope["f"]([1, 4, 5, 3, 9]) == [8, 10] == apply([FILTER, DOUBLE, FIRST], [1, 4, 5, 3, 9])


def test_killed_by_finds_the_boundary() -> None:
    assert all(3 in numbers for numbers in killed_by((FILTER,), (Code("filter", "x >= 3"),)))


def test_judge_accepts_references_and_refuses_wrong_solutions() -> None:
    chosen = sound("train")[::12] + sound("held_out")[::12]
    items = [(drill, program, right) for drill in chosen for program, right in labelled(drill.problem)]
    with Judge(JudgeConfig(workers=2)) as judge:
        judgements = judge.judge_many((drill.problem, program, None) for drill, program, _ in items)
        found = {
            (program, right, judgement.verdict is Verdict.ACCEPTED)
            for (_, program, right), judgement in zip(items, judgements, strict=True)
        }
    assert not [program for program, right, accepted in found if right != accepted]


def test_judge_passes_a_wrong_solution_of_drills_with_weak_tests() -> None:
    weak = [drill.problem for drill in drills("train") if drill.planted == "weak_tests"]
    with Judge(JudgeConfig(workers=2)) as judge:
        judgements = list(judge.judge_many((problem, program, None) for problem in weak for program in problem.wrong_solutions))
    passed = {judgement.problem_id for judgement in judgements if judgement.verdict is Verdict.ACCEPTED}
    assert passed == {problem.problem_id for problem in weak}


def labelled(problem: Problem) -> list[tuple[str, bool]]:
    return [(program, True) for program in problem.reference_solutions] + [(program, False) for program in problem.wrong_solutions]
