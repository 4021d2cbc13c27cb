from pathlib import Path

import pytest

from microcoder_core.config import load_config
from microcoder_core.errors import InputError, JudgeError
from microcoder_core.judge.pass_at_k import pass_at_k
from microcoder_core.stages.evaluate import EvaluateConfig, evaluate, in_window, mean_pass_at_k
from microcoder_core.stages.results import EvaluationResult, ProblemScore
from microcoder_core.storage.datasets import content_sha256, export_jsonl, read_problems
from microcoder_core.storage.rows import read_rows
from microcoder_core.storage.stage_output import read_stage_record, read_stage_result
from microcoder_core.tracking import NullTracker

SETTINGS = ["samples=4", "k=[1,4]", "temperature=1.0", "max_new_tokens=64", "torch_threads=1"]


def test_scores_agree_with_the_records_of_each_completion(drills: Path, tmp_path: Path) -> None:
    out = tmp_path / "e"
    config = load_config(EvaluateConfig, overrides=SETTINGS)
    result = evaluate(config, model="nano", problems=drills, out=out, tracker=NullTracker())
    assert read_stage_result(out, "evaluate", EvaluationResult) == result
    completions = [row for _, row in read_rows(out / "completions.jsonl")]
    scores = [ProblemScore.model_validate(row) for _, row in read_rows(out / "problems.jsonl")]
    assert (len(scores), len(completions)) == (8, 32)
    for one in scores:
        verdicts = [row["verdict"] for row in completions if row["problem_id"] == one.problem_id]
        assert verdicts.count("accepted") == one.correct
    assert result.pass_at_k["1"] == pytest.approx(sum(one.correct for one in scores) / 32)
    assert result.pass_at_k["4"] == pytest.approx(sum(one.correct > 0 for one in scores) / 8)
    assert sum(result.verdicts.values()) == pytest.approx(1)
    assert sum(table.problems for table in result.by_difficulty.values()) == 8


def test_fewer_samples_than_the_largest_k_is_refused() -> None:
    with pytest.raises(InputError, match=r"samples must be at least the largest k \(10\), got 5"):
        load_config(EvaluateConfig, overrides=["samples=5"])


def test_pass_at_k_by_hand() -> None:
    # 4 samples, 2 right: pass@2 = 1 - C(2,2)/C(4,2) = 5/6
    assert pass_at_k(4, 2, 2) == pytest.approx(5 / 6)


def test_problems_without_k_graded_samples_are_left_out_of_that_k() -> None:
    scores = [
        ProblemScore(problem_id="a", samples=4, correct=2),
        ProblemScore(problem_id="b", samples=4, correct=0, ungraded=2),
        ProblemScore(problem_id="c", samples=4, correct=0, ungraded=4),
    ]
    assert mean_pass_at_k(scores, [1, 4]) == {"1": 0.25, "4": 1.0}


@pytest.mark.parametrize(
    ("date", "inside"),
    [
        ("2024-06-30", False),
        ("2024-07-01", True),
        ("2024-12-31", True),
        ("2025-01-01", False),
        ("2024", False),
        ("2024-08", True),
        (None, False),
    ],
)
def test_a_date_counts_only_where_all_it_may_mean_is_inside(date: str | None, inside: bool) -> None:
    assert in_window(date, "2024-07-01", "2024-12-31") is inside


def test_a_judge_that_grades_nothing_is_a_failure(drills: Path, tmp_path: Path, ill_judge: None) -> None:
    config = load_config(EvaluateConfig, overrides=SETTINGS)
    with pytest.raises(JudgeError, match=r"grade no completion \(the judge is ill\)"):
        evaluate(config, model="nano", problems=drills, out=tmp_path / "e", tracker=NullTracker())
    assert not (tmp_path / "e").exists()


def test_what_was_evaluated_is_recorded_as_it_was_at_the_start(drills: Path, tmp_path: Path) -> None:
    export_jsonl(read_problems(drills), tmp_path / "d.jsonl")
    before = content_sha256(tmp_path / "d.jsonl")

    class Meanwhile(NullTracker):
        def log_metrics(self, metrics: object, step: int = 0) -> None:
            (tmp_path / "d.jsonl").unlink()

    evaluate(
        load_config(EvaluateConfig, overrides=SETTINGS),
        model="nano",
        problems=tmp_path / "d.jsonl",
        out=tmp_path / "e",
        tracker=Meanwhile(),
    )
    assert read_stage_record(tmp_path / "e", "evaluate").inputs["problems"] == before


def test_without_a_window_every_problem_counts() -> None:
    assert in_window(None, None, None)


def test_an_empty_window_is_an_error(drills: Path, tmp_path: Path) -> None:
    config = load_config(EvaluateConfig, overrides=[*SETTINGS, "date_from=2030-01-01"])
    with pytest.raises(InputError, match="from 2030-01-01 to today; widen the window"):
        evaluate(config, model="nano", problems=drills, out=tmp_path / "e", tracker=NullTracker())
    assert not (tmp_path / "e").exists()


@pytest.mark.parametrize("day", ["2025-99-99", "2025-02-30", "2025", "20250101"])
def test_a_day_that_is_not_in_the_calendar_is_refused(day: str) -> None:
    with pytest.raises(InputError, match="date_from: must be an ISO date, YYYY-MM-DD"):
        load_config(EvaluateConfig, overrides=[*SETTINGS, f"date_from='{day}'"])


def test_a_completion_that_the_model_has_no_room_for_is_refused(drills: Path, tmp_path: Path) -> None:
    config = load_config(EvaluateConfig, overrides=[*SETTINGS, "max_new_tokens=512"])
    with pytest.raises(InputError, match=r"more than the model's 512 positions; lower max_new_tokens to \d+"):
        evaluate(config, model="nano", problems=drills, out=tmp_path / "e", tracker=NullTracker())


def test_a_problem_that_is_there_twice_is_not_counted_twice(drills: Path, tmp_path: Path) -> None:
    problems = list(read_problems(drills))
    export_jsonl([*problems, problems[0]], tmp_path / "d.jsonl")
    config = load_config(EvaluateConfig, overrides=SETTINGS)
    with pytest.raises(InputError, match=r"problem_id: must differ .* twice"):
        evaluate(config, model="nano", problems=tmp_path / "d.jsonl", out=tmp_path / "e", tracker=NullTracker())


def test_the_judge_can_be_set(drills: Path, tmp_path: Path) -> None:
    config = load_config(EvaluateConfig, overrides=[*SETTINGS, "judge.time_limit_s=1e-9"])
    result = evaluate(config, model="nano", problems=drills, out=tmp_path / "e", tracker=NullTracker())
    assert result.verdicts["time_limit_exceeded"] > 0
    assert "accepted" not in result.verdicts
