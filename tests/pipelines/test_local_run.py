"""The pipeline on this machine, through KFP's local runner: real tasks in real processes."""

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kfp import dsl, local

from microcoder_core.errors import InputError, StageStopped
from microcoder_core.records import Problem
from microcoder_core.storage.datasets import export_jsonl, read_manifest
from pipelines.local_run import TaskFailedError, _failure, _quiet_kfp, run_training
from pipelines.run_folder import RunFolder
from pipelines.stage_process import Stages, own_processes


@dsl.component(base_image="any/image", install_kfp_package=False)
def write_down(texts: list[str], number: int, written: dsl.Output[dsl.Artifact], metrics: dsl.Output[dsl.Metrics]) -> None:
    """Writes its parameters down."""
    import json

    from components.stage_task import show_numbers

    with open(written.path, "w") as stream:
        json.dump([texts, number], stream)
    show_numbers(metrics, {"one": 1.0})


@dsl.component(base_image="any/image", install_kfp_package=False)
def read_metrics(written: dsl.Input[dsl.Artifact], metrics: dsl.Input[dsl.Metrics], broken: str, read: dsl.Output[dsl.Artifact]) -> None:
    """Fails where told to."""
    import os

    if os.path.exists(broken):
        raise SystemExit(9)
    open(read.path, "w").close()


@dsl.pipeline(name="two-steps")
def two_steps(broken: str, texts: list[str] = ["a=1", "b=0.5"], number: int = 7) -> dsl.Artifact:  # noqa: B006
    first = write_down(texts=texts, number=number)
    return read_metrics(written=first.outputs["written"], metrics=first.outputs["metrics"], broken=broken).outputs["read"]


@pytest.fixture
def stages(tmp_path: Path) -> Stages:
    return Stages({"write-down": "write down", "read-metrics": "read metrics"}, tmp_path / "logs")


def run_two_steps(root: Path, stages: Stages) -> Any:
    local.init(
        runner=local.SubprocessRunner(use_venv=False),
        pipeline_root=str(root / "artifacts"),
        workspace_root=str(root / "work" / "scratch"),
        enable_caching=True,
        cache_root=str(root / "cache"),
    )
    with own_processes(stages), _quiet_kfp(stages), pytest.warns(RuntimeWarning, match="non-Python base image"):
        return two_steps(broken=str(root / "broken")).output


def test_parameters_arrive_with_their_types_in_a_path_with_python3(tmp_path: Path, stages: Stages) -> None:
    root = tmp_path / "python3 project"
    run_two_steps(root, stages)
    (written,) = root.glob("artifacts/*/write-down/written")
    assert written.read_text() == '[["a=1", "b=0.5"], 7]'


def test_a_second_run_repeats_only_what_failed(tmp_path: Path, stages: Stages, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "broken").touch()
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "checkpoint").touch()
    with pytest.raises(RuntimeError, match="FAILURE"):
        run_two_steps(tmp_path, stages)
    assert (stages.title, stages.exit_code) == ("read metrics", 9)
    (tmp_path / "broken").unlink()
    capfd.readouterr()
    run_two_steps(tmp_path, again := Stages(stages.titles, stages.logs))
    output = capfd.readouterr()
    assert output.err == "[1/2] write down: done before\n[2/2] read metrics\n"
    assert output.out == ""
    assert again.exit_code == 0
    assert (tmp_path / "work" / "checkpoint").exists()


def test_kfp_errors_are_not_hidden(stages: Stages, capfd: pytest.CaptureFixture[str]) -> None:
    with _quiet_kfp(stages):
        handler = logging.StreamHandler()
        logging.getLogger().addHandler(handler)
        try:
            logging.info("Executing task")
            logging.error("Failed to read cache entry")
        finally:
            logging.getLogger().removeHandler(handler)
    assert capfd.readouterr().err == "Failed to read cache entry\n"


@pytest.mark.parametrize(
    ("code", "kind", "text"),
    [
        (1, TaskFailedError, r"^train it \(exit code 1\): no judge; the whole log is in out/logs; go on with: .*--out out --resume$"),
        (137, TaskFailedError, "exit code 137"),
        (2, InputError, "^train it: no judge$"),
        (143, StageStopped, "train it was stopped; go on with"),
        (130, StageStopped, "was stopped"),
    ],
)
def test_failure_tells_the_task_and_its_last_lines(tmp_path: Path, code: int, kind: type[Exception], text: str) -> None:
    stages = Stages({}, tmp_path, title="train it", exit_code=code, last_line="12:00:01 error: no judge")
    with pytest.raises(kind, match=text) as failed:
        raise _failure(stages, Path("out"))
    assert getattr(failed.value, "exit_code", 0) in (0, {130: 3}.get(code, code))


@pytest.fixture
def problems(tmp_path: Path, double: Problem, total: Problem) -> Path:
    """Two problems to train on, one of which is held out."""
    folder = tmp_path / "problems"
    folder.mkdir()
    export_jsonl([double, total], folder / "train.jsonl")
    export_jsonl([double], folder / "held_out.jsonl")
    return folder


@pytest.fixture
def untracked(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("MICROCODER_TRACKING", "off")
    before = dict(os.environ)
    yield
    assert dict(os.environ) | {"PYTEST_CURRENT_TEST": ""} == before | {"PYTEST_CURRENT_TEST": ""}, "a run leaves the environment as it was"


def test_bad_settings_end_the_run_and_resume_repeats_no_stage(
    tmp_path: Path, problems: Path, untracked: None, capfd: pytest.CaptureFixture[str]
) -> None:
    parameters = {
        "data_format": "jsonl",
        "data_source": str(problems / "train.jsonl"),
        "data_overrides": [
            "verify.references=false",
            "verify.wrong_solutions=false",
            "constraints.min_tests=1",
            "constraints.min_statement_words=1",
        ],
        "eval_format": "jsonl",
        "eval_source": str(problems / "held_out.jsonl"),
        "eval_overrides": ["date_from=2030-01-01"],
    }
    root = tmp_path / "run"
    with pytest.raises(InputError, match=r"^evaluate base: .*widen the window"):
        run_training(root, parameters, resume=False)
    (curated,) = root.glob("artifacts/*/curate/curated")
    assert read_manifest(curated).problems == 1
    assert "widen the window" not in capfd.readouterr().err  # the command says it, once
    with pytest.raises(InputError, match="evaluate base"):
        run_training(root, {}, resume=True)
    shown = capfd.readouterr().err
    assert shown.count("done before") == 3
    assert "[10/10]" not in shown
    assert json.loads((root / "run.json").read_text())["parameters"] == parameters


def test_bad_settings_are_refused_before_an_earlier_run_goes(tmp_path: Path) -> None:
    RunFolder(tmp_path).start("p", {})
    (tmp_path / "report.html").write_text("earlier")
    with pytest.raises(InputError, match=r"^eval_overrides: .*temprature: unknown key"):
        run_training(tmp_path, {"eval_overrides": ["temprature=1"]}, resume=False)
    assert (tmp_path / "report.html").read_text() == "earlier"


def test_a_refused_folder_is_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "thesis.txt").touch()
    with pytest.raises(InputError, match="holds no pipeline run"):
        run_training(tmp_path / "theirs", {}, resume=False)
    with pytest.raises(InputError, match="no pipeline run to resume"):
        run_training(tmp_path / "missing", {}, resume=True)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["theirs", "thesis.txt"]


def test_the_parent_run_ends_however_the_run_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []
    monkeypatch.setattr("microcoder_core.tracking.pipeline_run.close_pipeline_run", lambda run, status: closed.append(status))
    for error in (ZeroDivisionError(), KeyboardInterrupt()):
        monkeypatch.setattr("pipelines.local_run._run", lambda *_, error=error: (_ for _ in ()).throw(error))
        with pytest.raises((ZeroDivisionError, StageStopped)):
            run_training(tmp_path, {}, resume=False)
    assert closed == ["FAILED", "KILLED"]
