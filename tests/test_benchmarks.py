"""The committed measurements hold what the documents claim."""

import json
import statistics
import subprocess
import sys
from collections import Counter
from concurrent.futures import Future
from pathlib import Path

import pytest

from benchmarks import ablations, judge_bench, judge_sets, judge_soak, trainer_bench
from microcoder_core.judge.judge import Judge, JudgeConfig
from microcoder_core.records import Judgement, Problem, TestCase, Verdict

ROOT = Path(__file__).parents[1]


def test_training_gains_and_its_control_does_not() -> None:
    rows = json.loads((ROOT / "benchmarks" / "nano_gain.json").read_text())["rows"]
    arms = {arm: [row for row in rows if row["arm"] == arm] for arm in {row["arm"] for row in rows}}
    (base,) = arms["base"]
    trained, control = arms["microcoder"], arms["control (shuffled rewards)"]
    assert min(len(trained), len(control)) >= 3
    assert statistics.median(row["gain"] for row in trained) >= 0.15
    assert statistics.median(row["pass_at_k"]["10"] for row in trained) >= base["pass_at_k"]["10"]
    assert min(row["diversity"] for row in trained) >= base["diversity"] / 2
    assert statistics.median(row["gain"] for row in control) <= 0.03


def test_the_table_is_the_file() -> None:
    text = (ROOT / "benchmarks" / "nano_gain.md").read_text()
    for row in json.loads((ROOT / "benchmarks" / "nano_gain.json").read_text())["rows"]:
        seed, gain = ("", "") if row["seed"] is None else (row["seed"], f"{row['gain']:+.3f}")
        assert f"| {row['arm']} | {seed} | {row['pass_at_k']['1']:.3f} | {gain} |" in text


def test_the_judge_makes_no_mistake_and_is_as_fast_as_said() -> None:
    found = json.loads((ROOT / "benchmarks" / "judge_bench.json").read_text())
    assert (found["false_accepts"], found["false_rejects"]) == (0, 0)
    assert set(found["accuracy"]) == {"public cases", "HumanEval", "MBPP", "Code Jam", "HumanEvalPack"}
    assert all(rows["ours, guarded"]["programs"] >= 140 for rows in found["accuracy"].values())
    assert found["tests_per_s_core"] >= 250
    assert found["ratio_prime_code"] >= 5
    assert found["ratio_prime_code_right"] >= 1.5
    assert found["ratio_subprocess"] >= 3
    assert found["cpu_overhead"] <= 1.05
    assert judge_bench.tables(found) in (ROOT / "benchmarks" / "judge_bench.md").read_text()


def test_tables_are_written_between_their_marks(tmp_path: Path) -> None:
    found = json.loads((ROOT / "benchmarks" / "judge_bench.json").read_text())
    document = tmp_path / "a.md"
    document.write_text(f"before\n{judge_bench.MARKS[0]}\nold\n{judge_bench.MARKS[1]}\nafter\n")
    for _ in range(2):
        judge_bench.write_tables(document, found)
    text = document.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert (text.count("| evalplus |"), "old" in text) == (5, False)


def test_errors_are_counted_apart() -> None:
    items = [judge_bench.Item(None, "", is_right) for is_right in (True, True, False, False)]  # type: ignore[arg-type]
    assert judge_bench.errors(items, [True, False, True, False]) == {"false_accepts": 1, "false_rejects": 1, "programs": 4}


def test_spoilt_answers_of_code_jam_are_wrong_and_the_others_right() -> None:
    tests = (TestCase(input="1", expected="Case #1: 2.5\nCase #2: 3\n"), TestCase(input="2", expected="Case #1: 1.5\nCase #2: 4\n"))
    statement = "Print y. It may have an absolute or relative error of at most 1e-6."
    problem = Problem(problem_id="p", statement=statement, form="stdin", tests=tests)
    items = list(judge_sets.answer_keys(problem))
    assert Counter(item.is_right for item in items) == {True: 3, False: 4}
    with Judge(JudgeConfig(workers=1)) as judge:
        verdicts = list(judge.judge_many((item.problem, item.program, None) for item in items))
    assert [one.verdict is Verdict.ACCEPTED for one in verdicts] == [item.is_right for item in items]


def test_the_service_answered_all_and_grew_no_more() -> None:
    found = json.loads((ROOT / "benchmarks" / "judge_soak.json").read_text())
    assert (found["programs"], found["answered_once"], found["wrong"], found["findings"]) == (20_000, 20_000, 0, [])
    text = (ROOT / "benchmarks" / "judge_soak.md").read_text()
    warm = next(one for one in found["readings"] if one["answered"] >= judge_soak.WARM_UP * found["programs"])
    for figure in (found["programs_per_s"], warm["rss_mib"], found["readings"][-1]["rss_mib"], found["readings"][-1]["descriptors"]):
        assert f"{figure:.0f}" in text


def test_a_soak_tells_what_went_wrong() -> None:
    book = judge_soak.Book()
    good = judge_soak.Reading(10, 100.0, 8, 4)
    assert judge_soak.findings(book, [good], 0) == []
    for number, verdict in ((0, "accepted"), (0, "accepted"), (1, "wrong_answer")):
        done: Future[Judgement] = Future()
        done.set_result(Judgement(problem_id="p", program_id=str(number), verdict=Verdict(verdict), detail="why"))
        book.take(number, judge_soak.KINDS[0], done)
    found = judge_soak.findings(book, [good, judge_soak.Reading(10, 200.0, 99, 4)], 3)
    assert found == [
        "right, stdin (1): wrong_answer why",
        "1 programs have no answer",
        "1 programs have more than one answer",
        "memory grew from 100.0 to 200.0 MiB",
        "descriptors grew from 8 to 99",
    ]


def test_programs_of_a_soak_are_all_different_and_of_every_kind() -> None:
    drawn = list(judge_soak.programs(5000, seed=0))
    assert len({program for _, program in drawn}) == 5000
    assert {kind.name for kind, _ in drawn} == {kind.name for kind in judge_soak.KINDS}


def test_no_placeholder_is_left_in_the_documents() -> None:
    for file in (ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "benchmarks").glob("*.md")):
        assert not {"@@", "TODO", "TBD", "XXX"} & set(file.read_text().replace("(", " ").split()), file


@pytest.mark.parametrize("study", ablations.STUDIES)
def test_an_arm_of_a_study_differs_in_few_settings(study: str) -> None:
    first, *others = [ablations.settings(study, arm, 0).flat() for arm in ablations.STUDIES[study]]
    for other in others:
        assert 1 <= sum(first[key] != other[key] for key in first) <= 2


def test_the_tables_of_the_ablations_are_those_of_their_runs() -> None:
    rows = json.loads((ROOT / "benchmarks" / "ablations.json").read_text())
    text = (ROOT / "benchmarks" / "ablations.md").read_text()
    for study, arms in ablations.STUDIES.items():
        assert ablations.table(study, rows) in text
        assert {row["arm"] for row in rows if row["study"] == study} == set(arms)
        assert (ROOT / "benchmarks" / "figures" / f"ablation_{study}.svg").is_file()


def test_the_ratios_against_trl_are_those_of_their_runs() -> None:
    found = json.loads((ROOT / "benchmarks" / "trainer_bench.json").read_text())
    text = (ROOT / "benchmarks" / "trainer_bench.md").read_text()
    for name, one in found["results"].items():
        mine, theirs = (
            {key: statistics.median(run[key] for run in one["runs"][arm]) for key in one["runs"][arm][0]} for arm in ("ours", "trl")
        )
        assert one["update_ratio"] == round(theirs["update_s"] / mine["update_s"], 2)
        assert one["memory_ratio"] == round(mine["memory_mib"] / theirs["memory_mib"], 2)
        assert f"| `{name}` | {one['update_ratio']} | {one['step_ratio']} | {one['memory_ratio']} | " in text
    assert found["results"]["skewed"]["update_ratio"] >= 2
    assert found["results"]["skewed"]["step_ratio"] >= 1.5
    assert found["results"]["skewed"]["memory_ratio"] <= 0.7
    assert found["results"]["uniform"]["update_ratio"] >= 1.3


@pytest.mark.parametrize("measure", trainer_bench.MEASURES)
def test_a_measure_that_is_switched_off_changes_no_loss_but_the_head_s(measure: str) -> None:
    """Switches replace functions of the trainer, so each is tried in a process of its own."""
    if "head" in measure:
        pytest.skip("it takes the time of the plain head, not its numbers")
    losses = [
        subprocess.run([sys.executable, "-W", "ignore", "-c", SWITCHED, one], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for one in ("", measure)
    ]
    assert float(losses[0]) == pytest.approx(float(losses[1]), abs=1e-6)


SWITCHED = """
import sys
import torch
from benchmarks.trainer_bench import MEASURES
from tests.grpo.test_trainer import trainer
from tests.tiny import tiny_config
if sys.argv[1]:
    MEASURES[sys.argv[1]]()
one = trainer(tiny_config(max_steps=1))
one.train()
print(one.history[0]["loss"])
"""
