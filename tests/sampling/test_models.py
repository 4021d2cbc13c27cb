"""Models from a folder: whole ones load, others are refused in one line."""

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from microcoder_core.errors import InputError, SamplingError
from microcoder_core.nano import NANO_MODEL
from microcoder_core.sampling.models import load_model
from microcoder_core.sampling.transformers_sampler import TransformersSampler


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(NANO_MODEL, tmp_path / "models" / "nano"))


def without_tokenizer(folder: Path) -> None:
    for file in folder.glob("tokenizer*"):
        file.unlink()


def cut_weights(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:1000])


def without_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def without_a_layer(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    save_file({name: weight for name, weight in weights.items() if "layers.0" not in name}, folder / "model.safetensors")


def of_another_shape(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"hidden_size": 2 * config["hidden_size"]}))


def without_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def broken_config(folder: Path) -> None:
    (folder / "config.json").write_text("{")


DAMAGES = [without_tokenizer, cut_weights, without_weights, without_a_layer, of_another_shape, without_config, broken_config]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_model_is_refused_in_one_line(folder: Path, damage) -> None:
    damage(folder)
    with pytest.raises(InputError, match=r"model: .*give a (whole )?model folder") as caught:
        load_model(str(folder))
    assert "\n" not in str(caught.value)


def test_a_missing_folder_is_no_hub_id(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent.parent)
    with pytest.raises(InputError, match="no such folder, got models/other"):
        load_model("models/other")
    assert load_model("models/nano").max_positions == 512


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_model_of_nan_writes_nothing(folder: Path, temperature: float) -> None:
    weights = load_file(folder / "model.safetensors")
    name = next(iter(weights))
    save_file({**weights, name: weights[name] * float("nan")}, folder / "model.safetensors", {"format": "pt"})
    loaded = load_model(str(folder))
    sampler = TransformersSampler(loaded.model, loaded.tokenizer)
    with pytest.raises(SamplingError, match="logits are not finite"):
        sampler.sample([[5, 6]], group_size=2, temperature=temperature, max_new_tokens=4, seeds=[(0,)])
