import os
import subprocess
import sys
from pathlib import Path

import pytest

from microcoder_core.errors import InputError
from microcoder_core.storage.lock import locked_folder
from pipelines.run_folder import RunFolder

PARAMETERS = {"model": "nano", "train_presets": ["microcoder"], "seed": 3}


def test_resume_goes_on_with_the_same_run(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    started = folder.start("p", PARAMETERS)
    assert folder.resume(PARAMETERS) == folder.resume({}) == started
    assert isinstance(folder.resume({}).parameters["seed"], int)


def test_resume_with_other_parameters_names_them(tmp_path: Path) -> None:
    RunFolder(tmp_path).start("p", PARAMETERS)
    with pytest.raises(InputError, match=r"other parameters \(seed\)"):
        RunFolder(tmp_path).resume(PARAMETERS | {"seed": 4})


def test_resume_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no pipeline run to resume"):
        RunFolder(tmp_path).resume({})


def test_a_new_run_replaces_the_earlier_one_and_nothing_else(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    first = folder.start("p", PARAMETERS)
    for name in ("artifacts", "cache", "work"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "old").touch()
    (tmp_path / "notes.txt").write_text("mine")
    assert folder.start("p", PARAMETERS).pipeline_run != first.pipeline_run
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt", "run.json"]


def test_a_folder_with_something_else_is_refused_and_untouched(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="not empty and holds no pipeline run"):
        RunFolder(tmp_path).start("p", PARAMETERS)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("text", ["{", "[]", '{"other": 1}'])
def test_a_foreign_run_json_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(InputError, match=r"run\.json"):
        RunFolder(tmp_path).start("p", PARAMETERS)
    assert (tmp_path / "run.json").read_text() == text


def test_two_runs_do_not_share_a_folder(tmp_path: Path) -> None:
    with locked_folder(tmp_path), pytest.raises(InputError, match="another run is at work"), locked_folder(tmp_path):
        pass


def test_the_folder_stays_held_while_a_task_lives(tmp_path: Path) -> None:
    with locked_folder(tmp_path) as lock:
        task = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(lock,))
    with pytest.raises(InputError, match="another run"), locked_folder(tmp_path):
        pass
    task.communicate(b"\n")
    with locked_folder(tmp_path):
        pass


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_folder_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match="cannot be written"), locked_folder(tmp_path / "run"):
        pass
