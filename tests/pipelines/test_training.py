"""The training pipeline as compiled for a cluster."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf import json_format
from kfp import components
from kfp.kubernetes.kubernetes_executor_config_pb2 import KubernetesExecutorConfig
from kfp.pipeline_spec import pipeline_spec_pb2

from microcoder_core.config import build_config
from pipelines.compiling import COMPILED, StalePipelineError, check_compiled, compile_training
from pipelines.parameters import declared_types
from pipelines.training import TITLES

NEVER_CACHED = {"open-run", "report"}


@pytest.fixture(scope="module")
def documents() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(compile_training()))


@pytest.fixture(scope="module")
def tasks(documents: list[dict[str, Any]]) -> dict[str, Any]:
    return dict(documents[0]["root"]["dag"]["tasks"])


def test_parameters_are_these_alone() -> None:
    assert declared_types() == {
        "data_format": "STRING",
        "data_overrides": "LIST",
        "data_source": "STRING",
        "eval_format": "STRING",
        "eval_overrides": "LIST",
        "eval_source": "STRING",
        "model": "STRING",
        "probe_overrides": "LIST",
        "promote_model_name": "STRING",
        "promote_overrides": "LIST",
        "seed": "NUMBER_INTEGER",
        "train_overrides": "LIST",
        "train_presets": "LIST",
    }


def test_every_parameter_is_in_the_docs() -> None:
    page = (COMPILED.parents[2] / "docs" / "pipeline.md").read_text()
    assert [name for name in declared_types() if f"| `{name}` |" not in page] == []


def test_dependencies_are_the_dag(tasks: dict[str, Any]) -> None:
    assert {name: set(task.get("dependentTasks", ())) for name, task in tasks.items()} == {
        "open-run": set(),
        "import-problems": {"open-run"},
        "import-problems-2": {"open-run"},
        "curate": {"import-problems", "import-problems-2"},
        "probe": {"curate"},
        "train": {"curate", "probe"},
        "evaluate": {"import-problems-2"},
        "evaluate-2": {"import-problems-2", "train"},
        "promote": {"evaluate", "evaluate-2", "train"},
        "report": {"import-problems", "import-problems-2", "curate", "probe", "train", "evaluate", "evaluate-2", "promote"},
    }


def test_every_task_has_a_title(tasks: dict[str, Any]) -> None:
    assert {name: task["taskInfo"]["name"] for name, task in tasks.items()} == TITLES


def test_only_what_opens_and_closes_the_run_is_never_cached(tasks: dict[str, Any]) -> None:
    assert {name for name, task in tasks.items() if not task["cachingOptions"].get("enableCache")} == NEVER_CACHED


def test_run_id_comes_by_environment_not_by_parameter(documents: list[dict[str, Any]], tasks: dict[str, Any]) -> None:
    executors = documents[1]["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert len(executors) == len(tasks)
    for executor in executors.values():
        assert executor["fieldPathAsEnv"] == [{"fieldPath": "metadata.labels['pipeline/runid']", "name": "KFP_RUN_ID"}]
        assert executor["configMapAsEnv"][0]["optional"] is True
    assert "pipeline_job" not in yaml.safe_dump(documents[0])


def test_compiled_yaml_is_strictly_valid(documents: list[dict[str, Any]]) -> None:
    json_format.ParseDict(documents[0], pipeline_spec_pb2.PipelineSpec())
    json_format.ParseDict(documents[1], pipeline_spec_pb2.PlatformSpec())
    for executor in documents[1]["platforms"]["kubernetes"]["deploymentSpec"]["executors"].values():
        json_format.ParseDict(executor, KubernetesExecutorConfig())


def test_committed_yaml_loads_and_names_its_inputs() -> None:
    loaded = components.load_component_from_file(str(COMPILED))
    assert set(loaded.component_spec.inputs) == set(declared_types())


def test_committed_yaml_is_up_to_date() -> None:
    check_compiled(COMPILED)


def test_compiling_twice_gives_the_same_text() -> None:
    assert compile_training() == compile_training()


def test_stale_yaml_is_told_with_its_difference(tmp_path: Path) -> None:
    stale = tmp_path / "train.yaml"
    stale.write_text(COMPILED.read_text().replace("held_out", "held_in", 1))
    with pytest.raises(StalePipelineError, match=r"microcoder pipeline compile\n(.*\n)*-.*held_in"):
        check_compiled(stale)


def test_images_are_named_by_the_environment(tmp_path: Path) -> None:
    out = tmp_path / "train.yaml"
    command = [sys.executable, "-m", "microcoder_core.cli.main", "pipeline", "compile", "--out", str(out)]
    main = "import sys; from microcoder_core.cli.main import main; main(sys.argv[1:])"
    environment = {"MICROCODER_IMAGE_GPU": "registry.example/gpu@sha256:0"}
    subprocess.run([sys.executable, "-c", main, *command[3:]], env=environment, check=True, capture_output=True)
    executors = yaml.safe_load_all(out.read_text()).__next__()["deploymentSpec"]["executors"]
    images = {name: executor["container"]["image"] for name, executor in executors.items()}
    gpu = {name for name, image in images.items() if image == environment["MICROCODER_IMAGE_GPU"]}
    assert gpu == {"exec-probe", "exec-train", "exec-evaluate", "exec-evaluate-2"}


def test_stage_names_and_config_classes_exist() -> None:
    from microcoder_core.stages.promote import PromoteConfig

    assert "model_name" in PromoteConfig.model_fields
    build_config(PromoteConfig, {"model_name": "m"})
