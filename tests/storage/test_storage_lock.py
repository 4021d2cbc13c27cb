"""A folder held by one process at a time."""

from pathlib import Path

import pytest

from microcoder_core.errors import InputError
from microcoder_core.storage.lock import LOCK_FILE, locked_folder


def fail(folder: Path, made: str | None = None) -> None:
    with locked_folder(folder):
        if made:
            (folder / made).touch()
        raise InputError("no run in it")


def test_a_refused_folder_is_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "file").touch()
    for folder in ("theirs", "new"):
        with pytest.raises(InputError, match="no run in it"):
            fail(tmp_path / folder)
    assert [path.name for path in tmp_path.rglob("*")] == ["theirs", "file"]


def test_what_a_failed_run_made_stays(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        fail(tmp_path / "new", made="checkpoint")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["checkpoint"]


def test_a_lock_of_an_earlier_run_is_taken_over_and_kept(tmp_path: Path) -> None:
    (tmp_path / LOCK_FILE).touch()
    with pytest.raises(InputError):
        fail(tmp_path)
    with locked_folder(tmp_path):
        pass
    assert (tmp_path / LOCK_FILE).exists()
