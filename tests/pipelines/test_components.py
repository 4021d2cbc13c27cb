"""The components: thin, typed, and honest about how they ended."""

import ast
import json
import os
import signal
import sys
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from components.stage_task import exit_codes, made_by, show_numbers, stage_task
from components.summaries import of_probe
from microcoder_core.errors import InputError, MicrocoderError, StageStopped
from microcoder_core.records import Problem
from microcoder_core.stages.results import ProbeResult
from microcoder_core.storage.datasets import export_jsonl, read_problems

COMPONENTS = Path(__file__).resolve().parents[2] / "components"
STAGES = ("open_run", "import_problems", "curate", "probe", "train", "evaluate", "promote", "report")


@dataclass
class FakeArtifact:
    path: str
    metadata: dict[str, Any] = field(default_factory=dict)


@pytest.fixture
def artifact(tmp_path: Path) -> Any:
    return lambda name: FakeArtifact(str(tmp_path / name))


@pytest.fixture
def untracked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MICROCODER_TRACKING", "off")


def component(stage: str) -> Any:
    return getattr(__import__(f"components.{stage}.component", fromlist=[stage]), stage)


def tree(stage: str) -> ast.Module:
    return ast.parse((COMPONENTS / stage / "component.py").read_text())


def test_every_folder_is_a_stage() -> None:
    assert {file.parent.name for file in COMPONENTS.glob("*/component.py")} == set(STAGES)


@pytest.mark.parametrize("stage", STAGES)
def test_module_imports_standard_library_and_kfp_only(stage: str) -> None:
    roots = set()
    for node in tree(stage).body:
        if isinstance(node, ast.Import):
            roots |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            roots.add((node.module or "").split(".")[0])
    assert roots <= set(sys.stdlib_module_names) - {"__future__"} | {"kfp", "components"}


@pytest.mark.parametrize("stage", STAGES)
def test_body_is_thin_and_described(stage: str) -> None:
    function = next(node for node in tree(stage).body if isinstance(node, ast.FunctionDef))
    first, last = function.body[1], function.body[-1]
    assert (last.end_lineno or 0) - first.lineno < 20
    described = ast.get_docstring(function) or ""
    assert all(f"        {argument.arg}: " in (ast.get_docstring(function, clean=False) or "") for argument in function.args.args), (
        described
    )


@pytest.mark.parametrize("stage", STAGES)
def test_inputs_have_no_optional_numbers(stage: str) -> None:
    for annotation in component(stage).python_func.__annotations__.values():
        assert not {int, float} & set(typing.get_args(annotation)), "KFP 2.17 runs int(None) locally where one is left unset"


@pytest.mark.parametrize("stage", STAGES)
def test_image_is_named_and_nothing_is_installed(stage: str) -> None:
    container = component(stage).component_spec.implementation.container
    assert container.image.startswith("microcoder/")
    assert "pip install" not in " ".join(container.command)


@pytest.mark.parametrize("stage", STAGES[1:])
def test_results_leave_by_artifacts(stage: str) -> None:
    outputs = component(stage).component_spec.outputs
    assert all(output.type.startswith("system.") for output in outputs.values()), "a parameter is limited in size"
    assert {"metrics", "summary"} <= set(outputs)


def test_import_then_curate_leave_data_sets_with_metadata(
    tmp_path: Path, double: Problem, total: Problem, artifact: Any, untracked: None
) -> None:
    export_jsonl([double, total], tmp_path / "train.jsonl")
    export_jsonl([double], tmp_path / "held_out.jsonl")
    sets = {}
    for role in ("train", "held_out"):
        sets[role] = artifact(role)
        component("import_problems").python_func(
            role=role,
            format="jsonl",
            source=str(tmp_path / f"{role}.jsonl"),
            problems=sets[role],
            metrics=artifact("m"),
            summary=artifact("s"),
        )
    curated, metrics, summary = artifact("curated"), artifact("metrics"), artifact("summary")
    component("curate").python_func(
        problems=sets["train"],
        held_out=sets["held_out"],
        overrides=[
            "verify.references=false",
            "verify.wrong_solutions=false",
            "constraints.min_tests=1",
            "constraints.min_statement_words=1",
        ],
        curated=curated,
        metrics=metrics,
        summary=summary,
    )
    assert [problem.problem_id for problem in read_problems(Path(curated.path))] == ["total"]
    assert sets["train"].metadata["stage"] == "import_train"
    assert curated.metadata["problems_in"] == 2
    assert curated.metadata["problems_kept"] == 1
    assert curated.metadata["seconds"] > 0
    assert json.loads(Path(metrics.path).read_text()) == metrics.metadata
    assert "| kept | 1 |" in Path(summary.path).read_text()


def test_a_missing_source_ends_with_the_usage_code(tmp_path: Path, artifact: Any, untracked: None, capfd: Any) -> None:
    outputs = {"problems": artifact("p"), "metrics": artifact("m"), "summary": artifact("s")}
    with pytest.raises(SystemExit) as stopped:
        component("import_problems").python_func(role="train", format="jsonl", source=str(tmp_path / "none.jsonl"), **outputs)
    assert stopped.value.code == 2
    assert "none.jsonl" in capfd.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("error", "code"),
    [(InputError("x"), 2), (MicrocoderError("x"), 1), (StageStopped("x", 143), 143), (StageStopped("x", 3), 3), (KeyboardInterrupt(), 3)],
)
def test_exit_code_says_how_it_ended(error: BaseException, code: int) -> None:
    with pytest.raises(SystemExit) as stopped, exit_codes():
        raise error
    assert stopped.value.code == code


def test_sigterm_ends_a_task_with_143() -> None:
    with pytest.raises(SystemExit) as stopped, exit_codes():
        os.kill(os.getpid(), signal.SIGTERM)
    assert stopped.value.code == 143


def test_an_error_of_ours_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError), exit_codes():
        raise ZeroDivisionError


def test_a_failed_stage_describes_nothing(artifact: Any, untracked: None) -> None:
    output, metrics, summary = artifact("o"), artifact("m"), artifact("s")
    with pytest.raises(SystemExit), stage_task("train", [output], metrics, summary):
        raise MicrocoderError("no")
    assert output.metadata == metrics.metadata == {}
    assert not Path(summary.path).exists()


def test_metrics_have_a_file_for_the_local_cache(artifact: Any) -> None:
    metrics = artifact("deep/metrics")
    show_numbers(metrics, {"pass_at_1": 0.5})
    assert metrics.metadata == {"pass_at_1": 0.5}
    assert Path(metrics.path).is_file()


def test_made_by_reads_runs_and_seconds_in_order(artifact: Any) -> None:
    tracked = FakeArtifact("a", {"stage": "curate", "mlflow_run_id": "r1", "seconds": 2.0})
    untracked = FakeArtifact("b", {"stage": "train", "mlflow_run_id": "", "seconds": 3.0})
    assert made_by([tracked, untracked, FakeArtifact("c")]) == ({"curate": "r1"}, {"curate": 2.0, "train": 3.0})


def test_probe_summary_says_the_choice() -> None:
    summary = of_probe(ProbeResult(temperature=1.2, reason="it held", grid=(), pilots=()))
    assert summary.numbers == {"temperature": 1.2}
    assert summary.markdown.startswith("**Temperature 1.2**: it held")
