from pathlib import Path

import pytest

from microcoder_core.errors import InputError, JudgeError
from microcoder_core.stages.presets import load_probe_config
from microcoder_core.stages.probe import ProbeConfig, decide, probe
from microcoder_core.stages.results import GridPoint, Pilot, ProbeResult
from microcoder_core.storage.stage_output import read_stage_result
from microcoder_core.tracking import NullTracker

SMALL = ["temperatures=[0.5, 1.0, 3.0]", "problems=8", "pilot_updates=2", "train.rollout.group_size=4", "train.torch_threads=1"]


def point(temperature: float, pass_at_1: float) -> GridPoint:
    zeros = dict.fromkeys(
        ("diversity", "pairwise_dissimilarity", "token_entropy", "distinct_programs_frac", "mean_length", "truncated_frac"), 0.0
    )
    return GridPoint(temperature=temperature, pass_at_1=pass_at_1, **zeros)


def pilot(temperature: float, *diversity: float) -> Pilot:
    return Pilot(temperature=temperature, diversity=diversity, late_change=0, swing=0, holds=True)


def test_the_probe_measures_pilots_and_chooses_with_its_numbers(drills: Path, tmp_path: Path) -> None:
    config = load_probe_config(["microcoder", "nano"], SMALL)
    result = probe(config, model="nano", problems=drills, out=tmp_path / "p", tracker=NullTracker())
    assert read_stage_result(tmp_path / "p", "probe", ProbeResult) == result
    diversity = [one.diversity for one in result.grid]
    assert diversity == sorted(diversity)  # insight TEMP-2
    assert [one.temperature for one in result.pilots][:1] == [0.5]
    assert all(len(one.diversity) == 3 for one in result.pilots)
    assert result.temperature in [one.temperature for one in result.pilots]
    again = probe(config, model="nano", problems=drills, out=tmp_path / "again", tracker=NullTracker())
    assert again == result  # the model was put back after each pilot, and every draw is seeded


def test_the_decision_follows_from_the_numbers() -> None:
    grid = [point(0.6, 0.5), point(1.2, 0.4), point(1.8, 0.01)]
    pilots = [pilot(0.6, 0.5, 0.4, 0.3), pilot(1.2, 0.7, 0.7, 0.69)]
    assert decide(ProbeConfig(), grid, pilots).temperature == 1.2


def test_without_pilots_or_right_answers_the_configured_temperature_stands_and_it_is_said() -> None:
    nothing = decide(ProbeConfig(), [point(0.6, 0.5)], [])
    assert (nothing.temperature, "no pilots" in nothing.reason) == (1.2, True)
    unsolved = decide(ProbeConfig(), [point(0.6, 0.0)], [pilot(0.6, 0.5, 0.5)])
    assert (unsolved.temperature, "solved no problem" in unsolved.reason) == (1.2, True)


def test_presets_reach_the_pilots_and_unknown_keys_are_refused() -> None:
    config = load_probe_config(["grpo", "nano"], ["train.loss.clip_low=0.1"])
    assert (config.train.loss.clip_low, config.train.loss.kl_coef, config.train.rollout.group_size) == (0.1, 0.04, 8)
    with pytest.raises(InputError, match=r"train\.los"):
        load_probe_config(["grpo"], ["train.los=1"])


def test_a_model_that_solves_nothing_gets_no_pilots(drills: Path, tmp_path: Path) -> None:
    config = load_probe_config(["microcoder", "nano"], [*SMALL, "train.judge.time_limit_s=1e-9"])
    result = probe(config, model="nano", problems=drills, out=tmp_path / "p", tracker=NullTracker())
    assert result.pilots == ()
    assert "solved no problem" in result.reason


def test_a_judge_that_grades_nothing_is_no_measurement(drills: Path, tmp_path: Path, ill_judge: None) -> None:
    config = load_probe_config(["microcoder", "nano"], SMALL)
    with pytest.raises(JudgeError, match="grade no completion"):
        probe(config, model="nano", problems=drills, out=tmp_path / "p", tracker=NullTracker())
