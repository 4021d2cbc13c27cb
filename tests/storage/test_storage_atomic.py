"""What a stage leaves when it ends, fails, is refused or is killed."""

import errno
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from microcoder_core.errors import InputError
from microcoder_core.storage.atomic import (
    MARKER,
    atomic_file,
    atomic_folder,
    atomic_path,
    check_replaceable,
    publish_folder,
    writable,
    write_text,
)
from tests.processes import pid_of_an_ended_process


def finished(folder: Path, kind: str = "probe") -> Path:
    with atomic_folder(folder, kind) as staging:
        (staging / "stage.json").write_text("{}")
    return folder


def test_folder_appears_when_the_block_ends(tmp_path):
    with atomic_folder(tmp_path / "out", "probe") as staging:
        (staging / "a").write_text("a")
        assert not (tmp_path / "out").exists()
    assert (tmp_path / "out" / "a").read_text() == "a"
    assert os.listdir(tmp_path) == ["out"]


def test_failed_block_leaves_nothing(tmp_path):
    with pytest.raises(RuntimeError), atomic_folder(tmp_path / "out", "probe") as staging:  # noqa: PT012
        (staging / "a").write_text("a")
        raise RuntimeError
    assert os.listdir(tmp_path) == []


def test_failed_block_keeps_the_earlier_output(tmp_path):
    out = finished(tmp_path / "out")
    with pytest.raises(KeyboardInterrupt), atomic_folder(out, "probe"):
        raise KeyboardInterrupt
    assert os.listdir(tmp_path) == ["out"]
    assert (out / "stage.json").exists()


@pytest.mark.parametrize("earlier", [True, False])
def test_earlier_output_and_empty_folder_are_replaced(tmp_path, earlier):
    out = tmp_path / "out"
    if earlier:
        finished(out)
        (out / "mlflow_spool.jsonl").touch()  # put there by the tracker, after the stage
    else:
        out.mkdir()
    with atomic_folder(out, "probe") as staging:
        (staging / "new").write_text("new")
    assert sorted(os.listdir(out)) == [MARKER, "new"]
    assert os.listdir(tmp_path) == ["out"]


def test_an_output_of_another_kind_is_not_replaced(tmp_path):
    finished(tmp_path / "out", "trained model")
    with pytest.raises(InputError, match="holds a trained model, which a data set does not replace"):
        check_replaceable(tmp_path / "out", "data set")


def test_an_output_with_something_of_the_user_in_it_is_not_replaced(tmp_path):
    (finished(tmp_path / "out") / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"did not put there \(notes\.txt\)"):
        check_replaceable(tmp_path / "out", "probe")
    assert (tmp_path / "out" / "notes.txt").exists()


def test_a_file_of_the_user_deep_inside_is_kept_too(tmp_path):
    with atomic_folder(tmp_path / "out", "probe") as staging:
        (staging / "shards").mkdir()
        (staging / "shards" / "a").touch()
    check_replaceable(tmp_path / "out", "probe")
    (tmp_path / "out" / "shards" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"did not put there \(shards/notes\.txt\)"):
        check_replaceable(tmp_path / "out", "probe")


@pytest.mark.parametrize("marker", ["", "{", "[]", '{"kind": "probe"}', '{"kind": "probe", "files": null}', '{"kind": 1, "files": []}'])
def test_a_damaged_marker_lets_nothing_be_replaced(tmp_path, marker):
    (finished(tmp_path / "out") / MARKER).write_text(marker)
    with pytest.raises(InputError, match="is damaged"):
        check_replaceable(tmp_path / "out", "probe")


def test_a_link_stays_a_link_to_where_the_output_is(tmp_path):
    (tmp_path / "big").mkdir()
    for name, target in (("link", "big"), ("dangling", "later")):
        (tmp_path / name).symlink_to(tmp_path / target)
        finished(tmp_path / name)
        finished(tmp_path / name)
        assert (tmp_path / name).is_symlink()
        assert (tmp_path / target / "stage.json").is_file()
    assert sorted(os.listdir(tmp_path)) == ["big", "dangling", "later", "link"]


def test_a_name_that_the_system_refuses_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="File name too long"):
        check_replaceable(tmp_path / ("x" * 300), "probe")


def test_folder_of_the_user_is_not_replaced(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="not an output of microcoder"), atomic_folder(out, "probe"):
        pytest.fail("the block must not start")
    assert os.listdir(out) == ["thesis.tex"]


def test_folder_of_the_user_made_meanwhile_is_not_replaced(tmp_path):
    out = tmp_path / "out"
    with pytest.raises(InputError, match="not an output of microcoder"), atomic_folder(out, "probe"):  # noqa: PT012
        out.mkdir()
        (out / "thesis.tex").write_text("years of work")
    assert os.listdir(tmp_path) == ["out"]
    assert os.listdir(out) == ["thesis.tex"]


def test_file_in_the_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "out").write_text("text")
    with pytest.raises(InputError, match="is a file"), atomic_folder(tmp_path / "out", "probe"):
        pytest.fail("the block must not start")


def test_earlier_output_comes_back_when_the_rename_fails(tmp_path):
    out = finished(tmp_path / "out")
    with pytest.raises(InputError, match="cannot be written"):
        publish_folder(tmp_path / "missing", out)
    assert (out / "stage.json").exists()


@pytest.mark.parametrize("parent", ["file", "/proc/none"])
def test_place_that_cannot_be_written_is_an_input_error(tmp_path, parent):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"), atomic_folder(tmp_path / parent / "out", "probe"):
        pytest.fail("the block must not start")
    with pytest.raises(InputError, match="cannot be written"):
        write_text(tmp_path / parent / "out.txt", "text")


def test_full_disk_is_no_fault_of_the_input(tmp_path):
    with pytest.raises(OSError, match="No space"), writable(tmp_path):
        raise OSError(errno.ENOSPC, "No space left on device")


KILLED = """
import os, signal, sys
from pathlib import Path
from microcoder_core.records import Problem, TestCase
from microcoder_core.storage.datasets import DatasetWriter, LineageStep
tests = (TestCase(input="1", expected="1"),)
with DatasetWriter(Path(sys.argv[1]), LineageStep(stage="import")) as writer:
    for number in range(2500):
        if number == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        writer.add(Problem(problem_id=str(number), statement="s", form="stdin", tests=tests))
"""


@pytest.mark.parametrize("killed_at", [0, 1500])
@pytest.mark.parametrize("earlier", [False, True])
def test_killed_stage_leaves_nothing_that_looks_finished(tmp_path, killed_at, earlier):
    out = tmp_path / "out"
    if earlier:
        finished(out, "data set")
    process = subprocess.run([sys.executable, "-c", KILLED, str(out), str(killed_at)], check=False)
    assert process.returncode == -signal.SIGKILL
    assert out.exists() == earlier
    assert not list(tmp_path.rglob("manifest.json"))
    with atomic_folder(out, "data set") as staging:  # and the next run works
        (staging / "stage.json").write_text("{}")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]  # what the killed one left is gone


def test_an_output_that_a_killed_process_had_moved_aside_is_put_back(tmp_path):
    dead = pid_of_an_ended_process()
    finished(tmp_path / f".out.old-{socket.gethostname()}-{dead}")
    finished(tmp_path / f".out.old-elsewhere-{dead}")  # another machine's processes cannot be looked up here
    with pytest.raises(ZeroDivisionError), atomic_folder(tmp_path / "out", "probe"):
        raise ZeroDivisionError
    assert sorted(path.name for path in tmp_path.iterdir()) == [f".out.old-elsewhere-{dead}", "out"]


def test_what_a_living_process_makes_is_left_alone(tmp_path):
    theirs = tmp_path / f".out.partial-{socket.gethostname()}-{os.getppid()}"
    elsewhere = tmp_path / f".out.partial-{socket.gethostname()}-2-{pid_of_an_ended_process()}"  # on a machine of a longer name
    for folder in (theirs, elsewhere):
        folder.mkdir()
    with atomic_folder(tmp_path / "out", "probe") as staging:
        (staging / "stage.json").write_text("{}")
    assert theirs.exists()
    assert elsewhere.exists()


def test_a_file_that_a_killed_process_left_is_removed(tmp_path):
    (tmp_path / f".a.txt.partial-{socket.gethostname()}-{pid_of_an_ended_process()}").touch()
    with atomic_file(tmp_path / "a.txt") as stream:
        stream.write("x")
    assert os.listdir(tmp_path) == ["a.txt"]


def test_file_appears_when_the_block_ends(tmp_path):
    target = tmp_path / "new" / "a.txt"
    with atomic_file(target) as stream:
        stream.write("gr\u00fcn\n")
        assert not target.exists()
    assert target.read_bytes() == "gr\u00fcn\n".encode()
    assert os.listdir(target.parent) == ["a.txt"]


def test_failed_file_keeps_the_earlier_one(tmp_path):
    target = tmp_path / "a.txt"
    target.write_text("old")
    with pytest.raises(RuntimeError), atomic_file(target) as stream:  # noqa: PT012
        stream.write("new")
        raise RuntimeError
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_folder_in_the_place_of_the_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="is a folder"), atomic_path(tmp_path):
        pytest.fail("the block must not start")
