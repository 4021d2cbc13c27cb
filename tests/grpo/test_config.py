from pathlib import Path

import pytest

import configs
from microcoder_core.errors import InputError
from microcoder_core.grpo.schedule import temperature_at, warmup_factor
from microcoder_core.stages.presets import load_train_config, preset_file
from microcoder_core.stages.train import TrainStageConfig

PRESETS = sorted(file.stem for file in Path(configs.__file__).parent.glob("*.yaml"))


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_loads_alone_and_under_nano(preset: str) -> None:
    load_train_config([preset])
    load_train_config([preset, "nano"])


def test_the_microcoder_preset_spells_out_the_defaults() -> None:
    assert load_train_config(["microcoder"]) == TrainStageConfig()


def test_presets_differ_as_their_algorithms_do() -> None:
    microcoder, dapo, grpo = (load_train_config([name]) for name in ("microcoder", "dapo", "grpo"))
    assert [one.mask.kind for one in (microcoder, dapo, grpo)] == ["conditional", "none", "none"]
    assert [one.loss.kl_coef for one in (microcoder, dapo, grpo)] == [0, 0, 0.04]
    assert [one.loss.aggregation for one in (microcoder, dapo, grpo)] == ["token_mean", "token_mean", "sequence_mean"]
    assert grpo.loss.clip_low == grpo.loss.clip_high
    dr_grpo, deepcoder = (load_train_config([name]) for name in ("dr_grpo", "deepcoder"))
    assert [one.advantage.kind for one in (microcoder, dr_grpo, deepcoder)] == ["group_norm", "group_mean", "group_norm"]
    assert (dr_grpo.loss.aggregation, dr_grpo.loss.kl_coef, deepcoder.loss.aggregation) == ("constant", 0, "token_mean")
    assert [one.rollout.dynamic_sampling_rounds > 0 for one in (microcoder, dapo, grpo, dr_grpo, deepcoder)] == [
        False,
        True,
        False,
        False,
        False,
    ]
    assert [one.loss.dual_clip for one in (microcoder, dapo, grpo, dr_grpo, deepcoder)] == [None, 10, None, None, None]


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        ("rollout.temperature_stages=[[0, 0.6], [140, 0]]", "above 0"),
        ("rollout.temperature_stages=[[5, 0.6]]", "start at step 0"),
        ("rollout.temperature_stages=[[0, .inf]]", "finite"),
        ("optimizer.learning_rate=.nan", "finite|greater"),
        ("rollout.group_size=1", "greater than or equal to 2"),
        ("optimizer.mini_batch_size=7", "must divide"),
        ("loss.clip_hihg=0.3", "unknown key"),
        ("mask.rho=1.5", "less than or equal to 1"),
        ("mask.rho", "must be key=value"),
    ],
)
def test_bad_settings_are_refused_in_one_line(override: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint) as refused:
        load_train_config(["microcoder"], [override])
    assert "\n" not in str(refused.value)


def test_an_unknown_preset_names_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"no preset named 'gpro'.*dapo.*grpo.*microcoder.*nano"):
        preset_file("gpro")


def test_temperature_changes_in_steps() -> None:
    stages = ((0, 0.6), (140, 1.2))
    assert [temperature_at(stages, step) for step in (0, 139, 140, 999)] == [(0, 0.6), (0, 0.6), (1, 1.2), (1, 1.2)]


def test_warmup_is_linear_then_constant() -> None:
    assert [warmup_factor(update, 3) for update in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert warmup_factor(0, 0) == 1
