from pathlib import Path

import pytest

from microcoder_core.errors import InputError
from pipelines.parameters import PRESETS, declared_types, preset_file, read_parameters

TYPES = {"model": "STRING", "seed": "NUMBER_INTEGER", "train_overrides": "LIST"}


def test_later_values_replace_earlier_ones() -> None:
    assert read_parameters([], ["seed=1", "model=a", "seed=2"], TYPES) == {"seed": 2, "model": "a"}


def test_text_is_taken_as_it_stands() -> None:
    assert read_parameters([], ["model=2.50", "train_overrides=[max_steps=3, loss.clip_high=0.3]"], TYPES) == {
        "model": "2.50",
        "train_overrides": ["max_steps=3", "loss.clip_high=0.3"],
    }


@pytest.mark.parametrize(
    ("assignment", "complaint"),
    [
        ("seed", "must be parameter=value"),
        ("sede=1", "unknown parameter 'sede'"),
        ("seed=one", "whole number, got 'one'"),
        ("seed=true", "whole number, got True"),
        ("train_overrides=a=1", "list of texts"),
        ("train_overrides=[1]", r"list of texts.*got \[1\]"),
        ("train_overrides=[", "not YAML"),
    ],
)
def test_bad_parameters_are_refused_in_one_line(assignment: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint) as refused:
        read_parameters([], [assignment], TYPES)
    assert "\n" not in str(refused.value)


def test_an_unknown_preset_names_those_there_are() -> None:
    with pytest.raises(InputError, match=r"one of .*nano.*, got 'big'"):
        preset_file("big")


@pytest.mark.parametrize("preset", sorted(PRESETS.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_preset_fits_the_pipeline_and_its_stages(preset: Path) -> None:
    from microcoder_core.config import load_config
    from microcoder_core.stages.evaluate import EvaluateConfig
    from microcoder_core.stages.presets import load_probe_config, load_train_config
    from microcoder_core.stages.promote import PromoteConfig

    values = read_parameters([preset.stem], [], declared_types())
    load_train_config(values["train_presets"], values.get("train_overrides", []))
    load_probe_config(values["train_presets"], values.get("probe_overrides", []))
    load_config(EvaluateConfig, overrides=values.get("eval_overrides", []))
    load_config(PromoteConfig, overrides=[f"model_name={values['promote_model_name']}", *values.get("promote_overrides", [])])
