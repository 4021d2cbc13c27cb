from pathlib import Path

import pytest

from microcoder_core.errors import InputError
from pipelines.parameters import PRESETS, check_settings, declared_defaults, declared_types, preset_file, read_parameters

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
        ("train_overrides=[a=[1.0],b=1]", "quote items that hold brackets"),
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
    check_settings(read_parameters([preset.stem], [], declared_types()), declared_defaults())


@pytest.mark.parametrize(
    ("parameters", "complaint"),
    [
        ({"data_format": "parquet"}, "^data_format: import: format"),
        ({"eval_format": "parquet"}, "^eval_format: import: format"),
        ({"data_format": "jsonl", "data_source": "nowhere.jsonl"}, "^data_source: nowhere.jsonl: no such file"),
        ({"eval_source": "test"}, "^eval_source: source: must be train or held_out"),
        ({"model": "./nowhere"}, "^model: model: no such folder"),
        ({"data_overrides": ["constraints.max_test=1"]}, "^data_overrides: .*max_test: unknown key"),
        ({"train_presets": ["gpro"]}, "^train_presets, train_overrides: preset: no preset named 'gpro'"),
        ({"train_overrides": ["loss.clip_high=-1"]}, "^train_presets, train_overrides: .*loss.clip_high"),
        ({"probe_overrides": ["temperatures=[0]"]}, "^probe_overrides: .*temperatures"),
        ({"eval_overrides": ["samples=2"]}, "^eval_overrides: .*largest k"),
        ({"promote_overrides": ["margin=2"]}, "^promote_model_name, promote_overrides: .*margin"),
        ({"promote_model_name": "a/b"}, "^promote_model_name, promote_overrides: .*model_name"),
        ({"seed": -1}, "^train_presets, train_overrides: .*seed"),
    ],
)
def test_settings_that_a_stage_would_refuse_are_refused_at_once(parameters: dict[str, object], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint) as refused:
        check_settings(parameters, declared_defaults())
    assert "\n" not in str(refused.value)
