"""Presets: YAML files of `configs/` that a run is put together from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import configs
from microcoder_core.config import build_config, load_config, load_values
from microcoder_core.errors import InputError
from microcoder_core.stages.probe import ProbeConfig
from microcoder_core.stages.train import TrainStageConfig


def preset_file(preset: str) -> Path:
    """The file of a preset: a name out of `configs/`, or the path of a YAML file.

    Raises:
        InputError: No such preset; names those that there are.
    """
    if preset.endswith((".yaml", ".yml")):
        return Path(preset)
    folder = Path(configs.__file__).parent
    file = folder / f"{preset}.yaml"
    if not file.is_file():
        known = ", ".join(sorted(one.stem for one in folder.glob("*.yaml")))
        raise InputError(f"preset: no preset named {preset!r}; give one of {known}, or the path of a YAML file")
    return file


def load_train_config(presets: Sequence[str], overrides: Iterable[str] = ()) -> TrainStageConfig:
    """Presets merged left to right, then `key=value` overrides."""
    return load_config(TrainStageConfig, [preset_file(preset) for preset in presets], overrides)


def load_probe_config(presets: Sequence[str], overrides: Iterable[str] = (), files: Iterable[Path] = ()) -> ProbeConfig:
    """A probe whose pilots train as `presets` say.

    Args:
        overrides: Of the probe's own keys; those of the pilots begin with `train.`.
        files: YAML files of the probe's own keys.
    """
    train: dict[str, Any] = load_values([preset_file(preset) for preset in presets])
    return build_config(ProbeConfig, load_values(files, overrides, below={"train": train}))
