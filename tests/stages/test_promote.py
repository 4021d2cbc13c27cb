"""The decision, its reasons, and what the registry holds afterwards."""

import json
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from microcoder_core.cli.main import main
from microcoder_core.errors import InputError, MicrocoderError
from microcoder_core.stages.bootstrap import paired_bootstrap
from microcoder_core.stages.model_source import model_sha256
from microcoder_core.stages.promote import PromoteConfig, promote
from microcoder_core.stages.results import EvaluationResult, ProblemScore, PromotionResult
from microcoder_core.storage.rows import dump_row
from microcoder_core.storage.stage_output import StageRecord, read_stage_result, write_stage_record
from microcoder_core.tracking import NullTracker, registry
from microcoder_core.tracking.mlflow_server import connect
from microcoder_core.tracking.stage_run import stage_run

DECIDE_ONLY = PromoteConfig(registry=False)


def evaluation(folder: Path, correct: Sequence[int], *, ungraded: Sequence[int] = (), **settings: Any) -> Path:
    """An evaluation folder of 10 samples a problem, with the given numbers of correct ones."""
    folder.mkdir()
    missing = list(ungraded) or [0] * len(correct)
    rows = [
        ProblemScore(problem_id=f"p{number}", samples=10, correct=count, ungraded=missing[number]) for number, count in enumerate(correct)
    ]
    (folder / "problems.jsonl").write_text("".join(dump_row(row.model_dump(mode="json", exclude_none=True)) for row in rows))
    numbers: dict[str, Any] = dict.fromkeys(("diversity", "distinct_programs_frac", "mean_length", "truncated_frac"), 0.5)
    numbers |= {"samples": 10, "temperature": 0.6, "max_new_tokens": 64} | settings
    result = EvaluationResult(model=folder.name, problems=len(rows), pass_at_k={}, verdicts={}, ungraded=sum(missing), **numbers)
    weights = folder.parent / ("model" if folder.name == "trained" else "base_model")
    inputs = {"problems": "abc", "model_sha256": model_sha256(str(weights))}
    record = StageRecord(stage="evaluate", inputs=inputs, result=result.model_dump(mode="json"))
    write_stage_record(folder, record)
    return folder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"w" * 1000)
    return folder


def decision(
    tmp_path: Path, model: Path, base: Sequence[int], trained: Sequence[int], config: PromoteConfig = DECIDE_ONLY
) -> PromotionResult:
    for name in ("base", "trained"):
        shutil.rmtree(tmp_path / name, ignore_errors=True)
    folders = {"base": evaluation(tmp_path / "base", base), "trained": evaluation(tmp_path / "trained", trained)}
    return promote(config, **folders, model=model, out=tmp_path / "out", tracker=NullTracker())


def test_a_clear_gain_is_promoted(tmp_path: Path, model: Path) -> None:
    result = decision(tmp_path, model, [5] * 30, [7] * 20 + [6] * 10)
    assert result.promoted
    assert result.difference == pytest.approx(1 / 6)
    assert 0.1 < result.ci_low < result.difference < result.ci_high < 0.2
    assert result.version is None
    assert read_stage_result(tmp_path / "out", "promote", PromotionResult) == result


@pytest.mark.parametrize(
    ("base", "trained", "reason"),
    [
        ([5] * 30, [5] * 30, "did not rise"),
        ([5] * 30, [4] * 30, "did not rise"),
        ([5] * 30, [0, 10] * 14 + [6, 6], "may be below the margin of 0.01"),
        ([5] * 1000, [5] * 970 + [9] * 30, "may be below the margin of 0.01"),
        ([0] * 19, [10] * 19, "19 problems are too few"),
    ],
)
def test_what_is_not_promoted_has_its_reason(tmp_path: Path, model: Path, base: list[int], trained: list[int], reason: str) -> None:
    result = decision(tmp_path, model, base, trained)
    assert not result.promoted
    assert reason in result.reason


def test_ungraded_completions_count_for_nobody(tmp_path: Path, model: Path) -> None:
    base = evaluation(tmp_path / "base", [2] * 20 + [0], ungraded=[5] * 20 + [10])
    trained = evaluation(tmp_path / "trained", [4] * 20 + [10], ungraded=[0] * 21)
    result = promote(DECIDE_ONLY, base=base, trained=trained, model=model, out=tmp_path / "out", tracker=NullTracker())
    assert result.base_pass_at_1 == pytest.approx(0.4)
    assert result.trained_pass_at_1 == pytest.approx(0.4)


def test_problems_are_paired_by_name_not_by_line(tmp_path: Path, model: Path) -> None:
    correct = [0, 10] * 15
    base, trained = evaluation(tmp_path / "base", correct), evaluation(tmp_path / "trained", correct)
    lines = (trained / "problems.jsonl").read_text().splitlines(keepends=True)
    (trained / "problems.jsonl").write_text("".join(reversed(lines)))
    result = promote(DECIDE_ONLY, base=base, trained=trained, model=model, out=tmp_path / "out", tracker=NullTracker())
    assert (result.difference, result.ci_low, result.ci_high) == (0, 0, 0)


@pytest.mark.parametrize("settings", [{"temperature": 1.2}, {"max_new_tokens": 128}, {"samples": 5}, {"date_from": "2025-01-01"}])
def test_other_sampling_settings_are_refused(tmp_path: Path, model: Path, settings: dict[str, Any]) -> None:
    base, trained = evaluation(tmp_path / "base", [5] * 30), evaluation(tmp_path / "trained", [7] * 30, **settings)
    with pytest.raises(InputError, match=f"{next(iter(settings))} must be"):
        promote(DECIDE_ONLY, base=base, trained=trained, model=model, out=tmp_path / "out", tracker=NullTracker())
    assert not (tmp_path / "out").exists()


def test_other_problems_are_refused(tmp_path: Path, model: Path) -> None:
    with pytest.raises(InputError, match="1 problems are in one"):
        decision(tmp_path, model, [5] * 30, [5] * 31)


def test_a_folder_without_a_model_is_refused(tmp_path: Path, model: Path) -> None:
    (model / "config.json").unlink()
    with pytest.raises(InputError, match="must be a model folder"):
        decision(tmp_path, model, [5] * 30, [7] * 30)


def test_the_interval_is_that_of_theory() -> None:
    differences = np.random.default_rng(3).normal(0.1, 0.3, size=400)
    low, high = paired_bootstrap(list(differences), confidence=0.95, resamples=10_000, seed=0)
    half = 1.96 * differences.std() / np.sqrt(400)
    assert low == pytest.approx(differences.mean() - half, abs=0.002)
    assert high == pytest.approx(differences.mean() + half, abs=0.002)


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    draw = random.Random(5)
    samples = [[draw.choice((-0.2, 0.0, 0.1, 0.6)) for _ in range(60)] for _ in range(400)]
    intervals = [paired_bootstrap(sample, confidence=0.9, resamples=500, seed=1) for sample in samples]
    covered = sum(low <= 0.125 <= high for low, high in intervals) / len(intervals)
    assert 0.85 < covered < 0.94


def test_same_seed_same_interval() -> None:
    differences = [0.1, -0.2, 0.3, 0.4] * 10
    first, again, other = (paired_bootstrap(differences, confidence=0.95, resamples=1000, seed=seed) for seed in (1, 1, 2))
    assert first == again != other


@pytest.fixture(scope="module")
def registry_uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('registry') / 'mlflow.db'}"


def register(tmp_path: Path, model: Path, name: str, base: Sequence[int], trained: Sequence[int]) -> PromotionResult:
    return decision(tmp_path, model, base, trained, PromoteConfig(model_name=name))


def aliases(uri: str, name: str) -> dict[str, str]:
    return {alias: str(version) for alias, version in connect(uri).client.get_registered_model(name).aliases.items()}


def test_champion_moves_on_promotion_only(tmp_path: Path, model: Path, registry_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", registry_uri)
    worse = register(tmp_path, model, "moves", [5] * 30, [5] * 30)
    assert worse.reason.endswith("; there is no champion yet")
    assert aliases(registry_uri, "moves") == {"challenger": "1"}
    assert register(tmp_path, model, "moves", [5] * 30, [8] * 30).promoted
    assert aliases(registry_uri, "moves") == {"challenger": "2", "champion": "2"}
    assert not register(tmp_path, model, "moves", [5] * 30, [4] * 30).promoted
    assert aliases(registry_uri, "moves") == {"challenger": "3", "champion": "2"}
    fallen = register(tmp_path, model, "moves", [5] * 30, [7] * 30)
    assert not fallen.promoted
    assert "but champion version 2 has 0.800 on the same evaluation and this model 0.700" in fallen.reason
    assert register(tmp_path, model, "moves", [5] * 30, [8] * 30).promoted
    elsewhere = register(tmp_path, model, "moves", [1] * 40, [3] * 40)
    assert not elsewhere.promoted
    assert "but champion version 5 was measured on another evaluation; evaluate it on this one" in elsewhere.reason
    assert aliases(registry_uri, "moves") == {"challenger": "6", "champion": "5"}


def test_a_model_trained_from_the_champion_is_compared_with_it(
    tmp_path: Path, model: Path, registry_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", registry_uri)
    register(tmp_path, model, "weekly", [5] * 30, [8] * 30)
    shutil.copytree(model, tmp_path / "base_model")  # this week's base is last week's champion
    (model / "model.safetensors").write_bytes(b"better")
    assert register(tmp_path, model, "weekly", [1] * 40, [3] * 40).promoted
    assert aliases(registry_uri, "weekly") == {"challenger": "2", "champion": "2"}


def test_no_champion_is_made_without_its_record(tmp_path: Path, model: Path, registry_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", registry_uri)
    monkeypatch.setattr("microcoder_core.stages.promote.write_stage_record", lambda *_: (_ for _ in ()).throw(OSError(28, "disk full")))
    with pytest.raises(OSError, match="disk full"):
        register(tmp_path, model, "unrecorded", [5] * 30, [8] * 30)
    assert aliases(registry_uri, "unrecorded") == {"challenger": "1"}


def test_an_evaluation_of_another_model_is_refused(tmp_path: Path, model: Path) -> None:
    base, trained = evaluation(tmp_path / "base", [5] * 30), evaluation(tmp_path / "trained", [8] * 30)
    (model / "model.safetensors").write_bytes(b"other")
    with pytest.raises(InputError, match="got one of other weights"):
        promote(DECIDE_ONLY, base=base, trained=trained, model=model, out=tmp_path / "out", tracker=NullTracker())


def test_a_version_names_its_folder_and_run_and_copies_nothing(
    tmp_path: Path, model: Path, registry_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", registry_uri)
    base, trained = evaluation(tmp_path / "base", [5] * 30), evaluation(tmp_path / "trained", [8] * 30)
    config = PromoteConfig(model_name="reference")
    with stage_run("promote") as tracker:
        result = promote(config, base=base, trained=trained, model=model, out=tmp_path / "out", tracker=tracker)
    client = connect(registry_uri).client
    version = client.get_model_version("reference", result.version)
    assert (version.source, version.run_id) == (str(model), tracker.run_id)
    assert version.description == result.reason
    assert float(version.tags["microcoder.pass_at_1"]) == 0.8
    run = client.get_run(tracker.run_id)
    assert run.data.metrics["promote/difference"] == pytest.approx(0.3)
    assert list(Path(registry_uri.removeprefix("sqlite:///")).parent.rglob("*.safetensors")) == []


def test_a_registry_that_is_away_fails_the_stage(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    monkeypatch.setattr(registry, "_PAUSES_S", (0.01, 0.01))
    with pytest.raises(MicrocoderError, match="--no-registry"):
        register(tmp_path, model, "away", [5] * 30, [8] * 30)
    assert not (tmp_path / "out").exists()


def test_the_command_prints_the_decision(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MICROCODER_TRACKING", "off")
    base, trained = evaluation(tmp_path / "base", [5] * 30), evaluation(tmp_path / "trained", [5] * 30)
    arguments = ["promote", f"--base={base}", f"--trained={trained}", f"--model={model}", f"--out={tmp_path / 'out'}", "--no-registry"]
    with pytest.raises(SystemExit, match="0"):
        main(arguments)
    assert capsys.readouterr().out.startswith("not promoted: pass@1 did not rise")
    with pytest.raises(SystemExit, match="0"):
        main([*arguments, "--json", "margin=0.2"])
    assert json.loads(capsys.readouterr().out)["margin"] == 0.2
    with pytest.raises(SystemExit, match="2"):
        main([*arguments, "margin=2"])
