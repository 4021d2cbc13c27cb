"""The pipeline's parameters: from preset files, then `key=value`, each held against the type that the pipeline declares."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from microcoder_core.config import read_yaml_mapping
from microcoder_core.errors import InputError

PRESETS = Path(__file__).resolve().parents[1] / "configs" / "pipelines"

Types = Mapping[str, str]


def declared_types() -> dict[str, str]:
    """Each parameter of the training pipeline with its KFP type: STRING, NUMBER_INTEGER, LIST."""
    from kfp.pipeline_spec.pipeline_spec_pb2 import ParameterType

    from pipelines.training import training

    parameters = training.pipeline_spec.root.input_definitions.parameters
    return {name: ParameterType.ParameterTypeEnum.Name(parameters[name].parameter_type) for name in sorted(parameters)}


def declared_defaults() -> dict[str, Any]:
    """Each parameter of the training pipeline with its default."""
    from pipelines.training import training

    return {name: parameter.default for name, parameter in inspect.signature(training.pipeline_func).parameters.items()}


def read_parameters(presets: Iterable[str], assignments: Iterable[str], types: Types) -> dict[str, Any]:
    """The parameters that presets and assignments set; later ones replace earlier ones.

    Args:
        presets: Names of files in `configs/pipelines`, without `.yaml`.
        assignments: Each `parameter=value`. A string is taken as it stands, any other type is read as YAML.

    Raises:
        InputError: An unknown preset or parameter, or a value of another type.
    """
    parameters: dict[str, Any] = {}
    for name in presets:
        file = preset_file(name)
        parameters |= {key: _checked(key, value, types, str(file)) for key, value in read_yaml_mapping(file).items()}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals:
            raise InputError(f"{assignment}: must be parameter=value; parameters are {', '.join(types)}")
        parameters[key] = _checked(key, text if types.get(key) == "STRING" else _yaml(key, text), types, "command line")
    return parameters


def check_settings(parameters: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Raises InputError, with the parameter's name, where a stage would refuse its settings or find no input on this machine."""
    from components import settings

    given = {**defaults, **parameters}
    presets, overrides, seed = given["train_presets"], given["train_overrides"], given["seed"]
    checks: dict[str, Callable[[], object]] = {
        "data_format": lambda: settings.of_import(given["data_format"]),
        "eval_format": lambda: settings.of_import(given["eval_format"]),
        "data_source": lambda: settings.check_source(given["data_format"], given["data_source"]),
        "eval_source": lambda: settings.check_source(given["eval_format"], given["eval_source"]),
        "model": lambda: settings.check_model(given["model"]),
        "data_overrides": lambda: settings.of_curate(given["data_overrides"]),
        "train_presets, train_overrides": lambda: settings.of_training(presets, overrides, seed),
        "probe_overrides": lambda: settings.of_probe(presets, overrides, given["probe_overrides"], seed),
        "eval_overrides": lambda: settings.of_evaluation(given["eval_overrides"], seed),
        "promote_model_name, promote_overrides": lambda: settings.of_promotion(given["promote_model_name"], given["promote_overrides"]),
    }
    for names, check in checks.items():
        try:
            check()
        except InputError as error:
            raise InputError(f"{names}: {error}") from None


def preset_file(name: str) -> Path:
    """The file of a preset of the pipeline."""
    file = PRESETS / f"{name}.yaml"
    if not file.is_file():
        known = ", ".join(sorted(path.stem for path in PRESETS.glob("*.yaml")))
        raise InputError(f"preset: must be one of {known}, got {name!r}")
    return file


def _checked(key: str, value: Any, types: Types, where: str) -> Any:
    if key not in types:
        raise InputError(f"{where}: unknown parameter {key!r}; parameters are {', '.join(types)}")
    fits = {
        "STRING": isinstance(value, str),
        "NUMBER_INTEGER": isinstance(value, int) and not isinstance(value, bool),
        "LIST": isinstance(value, list) and all(isinstance(item, str) for item in value),
    }[types[key]]
    if not fits:
        wanted = {"STRING": "text", "NUMBER_INTEGER": "a whole number", "LIST": "a list of texts, such as [a=1, b=2]"}[types[key]]
        raise InputError(f"{where}: {key} must be {wanted}, got {value!r}")
    return value


def _yaml(key: str, text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        raise InputError(
            f"command line: {key}: not YAML, got {text!r}; quote items that hold brackets: ['temperatures=[0.8, 1.2]', seed=1]"
        ) from None
