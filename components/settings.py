"""The configuration of each stage as its component's parameters give it; also checked before a run starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from microcoder_core.stages.curate import CurateConfig
    from microcoder_core.stages.evaluate import EvaluateConfig
    from microcoder_core.stages.import_problems import ImportConfig
    from microcoder_core.stages.probe import ProbeConfig
    from microcoder_core.stages.promote import PromoteConfig
    from microcoder_core.stages.train import TrainStageConfig


def of_import(data_format: str) -> ImportConfig:
    """Which format is imported."""
    from microcoder_core.config import build_config
    from microcoder_core.stages.import_problems import ImportConfig

    return build_config(ImportConfig, {"format": data_format}, "import")


def of_curate(overrides: Sequence[str]) -> CurateConfig:
    """What a problem must be to be kept."""
    from microcoder_core.config import load_config
    from microcoder_core.stages.curate import CurateConfig

    return load_config(CurateConfig, overrides=overrides)


def of_training(presets: Sequence[str], overrides: Sequence[str], seed: int) -> TrainStageConfig:
    """How training goes; the seed is for the stage, unless the overrides name one."""
    from microcoder_core.stages.presets import load_train_config

    return load_train_config(presets, [f"seed={seed}", *overrides])


def of_probe(train_presets: Sequence[str], train_overrides: Sequence[str], overrides: Sequence[str], seed: int) -> ProbeConfig:
    """What the probe measures; its pilots train as the training to come."""
    from microcoder_core.stages.presets import load_probe_config

    pilots = [f"train.{override}" for override in (f"seed={seed}", *train_overrides)]
    return load_probe_config(train_presets, [*pilots, *overrides])


def of_evaluation(overrides: Sequence[str], seed: int) -> EvaluateConfig:
    """How a model is asked and scored."""
    from microcoder_core.config import load_config
    from microcoder_core.stages.evaluate import EvaluateConfig

    return load_config(EvaluateConfig, overrides=[f"seed={seed}", *overrides])


def of_promotion(model_name: str, overrides: Sequence[str]) -> PromoteConfig:
    """When a model is better, and its name."""
    from microcoder_core.config import build_config, load_values
    from microcoder_core.stages.promote import PromoteConfig

    return build_config(PromoteConfig, load_values(overrides=overrides, below={"model_name": model_name}))


def check_source(data_format: str, source: str) -> None:
    """Raises InputError where an import would find nothing on this machine."""
    from microcoder_core.stages.import_problems import check_source

    check_source(data_format, source)


def check_model(model: str) -> None:
    """Raises InputError where the model would not be found on this machine."""
    from microcoder_core.sampling.models import check_model_name

    check_model_name(model)
