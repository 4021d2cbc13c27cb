from pathlib import Path

import pytest

import configs
from microcoder_core.errors import InputError
from microcoder_core.grpo.config import AutoTemperatureConfig
from microcoder_core.grpo.schedule import TemperatureState, observe_diversity, temperature_at, warmup_factor
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
        ("rollout.temperature_stages=[[0, 0.6], [10, 0.8], [20, 1.0]]", "at least 20 steps apart.*TEMP-10"),
        ("rollout.temperature_auto={temperatures: []}", "at least 1 item"),
        ("rollout.temperature_auto={temperatures: [1.5], hold_steps: 5}", "greater than or equal to 20"),
        ("loss.dual_clip=1", "greater than 1"),
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


def test_automatic_stages_jump_once_diversity_has_stayed_low_and_then_hold() -> None:
    auto = AutoTemperatureConfig(temperatures=(1.5, 1.8), diversity_floor=0.6, smoothing=0.5, patience_steps=3, hold_steps=20)
    state, lows = TemperatureState(), []
    for step in range(100):
        state = observe_diversity(state, auto, 0.7 if step < 30 or step == 33 else 0.4, step)
        lows.append(state.low_steps)
    # 30: 0.55, low; 31, 32: low; the third low step is 32; but 33 comes too late to stop it
    assert state.stages == ((33, 1.5), (53, 1.8))
    assert lows[29:34] == [0, 1, 2, 0, 1]
    assert state.smoothed_diversity == pytest.approx(0.4)


def test_a_single_low_step_and_the_first_steps_bring_no_jump() -> None:
    auto = AutoTemperatureConfig(temperatures=(1.5,), smoothing=1.0, patience_steps=2, hold_steps=20)
    state = TemperatureState()
    for step in range(40):
        state = observe_diversity(state, auto, 0.4 if step % 2 else 0.7, step)
    assert state.stages == ()
    early = TemperatureState()
    for step in range(19):
        early = observe_diversity(early, auto, 0.1, step)
    assert early.stages == ()
    assert observe_diversity(early, auto, 0.1, 19).stages == ((20, 1.5),)


def test_automatic_stages_take_the_place_of_later_fixed_ones() -> None:
    with pytest.raises(InputError, match="takes the place of later stages"):
        load_train_config(
            ["microcoder"], ["rollout.temperature_stages=[[0, 0.6], [140, 1.2]]", "rollout.temperature_auto.temperatures=[1.5]"]
        )


def test_warmup_is_linear_then_constant() -> None:
    assert [warmup_factor(update, 3) for update in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert warmup_factor(0, 0) == 1
