"""Files and folders that appear whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import glob
import json
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from microcoder_core.errors import InputError

MARKER = ".microcoder.json"
"""In every folder that was published whole: what kind of output it is and which files it holds: these, and no others, may be replaced."""
ADDED_LATER = ("mlflow_spool.jsonl",)
_HOST = socket.gethostname()


@contextlib.contextmanager
def atomic_folder(target: Path, kind: str) -> Iterator[Path]:
    """A fresh folder beside `target` that takes its place when the block ends well, and is removed when it does not.

    Args:
        kind: What kind of output it is, such as `data set`; only one of the same kind is replaced.

    Raises:
        InputError: See `check_replaceable`.
    """
    target = Path(os.path.realpath(target))
    _clear_leftovers(target)
    check_replaceable(target, kind)
    with staged_folder(target) as staging:
        yield staging
        write_text(staging / MARKER, json.dumps({"kind": kind, "files": sorted(_files(staging))}) + "\n")
        check_replaceable(target, kind)


@contextlib.contextmanager
def staged_folder(target: Path) -> Iterator[Path]:
    """A fresh folder beside `target` that takes the place of whatever is there when the block ends well, and is removed otherwise."""
    target = Path(os.path.realpath(target))
    _clear_leftovers(target)
    staging = _beside(target, "partial")
    with writable(target):
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(parents=True)
    try:
        yield staging
        publish_folder(staging, target)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise


def publish_folder(staging: Path, target: Path) -> None:
    """Renames `staging` to `target`; an earlier output there goes away only after the new one stands."""
    with writable(target):
        if not target.exists():
            staging.rename(target)
            return
        old = _beside(target, "old")
        target.rename(old)
        try:
            staging.rename(target)
        except BaseException:
            old.rename(target)
            raise
        shutil.rmtree(old)


def check_replaceable(target: Path, kind: str) -> None:
    """Says, before the work, whether an output of this kind may be put at `target`.

    Raises:
        InputError: `target` is a file, holds anything but an output of the same kind as it was published, or cannot be made.
    """
    target = Path(os.path.realpath(target))
    with writable(target):
        exists = target.exists()
    if not exists:
        _check_can_be_made(target)
        return
    if not target.is_dir():
        raise InputError(f"{target}: is a file; give a folder that is new, empty or an earlier output of the same command")
    there = _files(target)
    if not there:
        return
    if MARKER not in there:
        raise InputError(f"{target}: is not empty and not an output of microcoder; give a new folder or empty this one")
    made, files = _read_marker(target / MARKER)
    if made != kind:
        raise InputError(f"{target}: holds a {made}, which a {kind} does not replace; give another folder or delete this one")
    if added := sorted(there - {MARKER, *ADDED_LATER, *files}):
        raise InputError(f"{target}: holds what microcoder did not put there ({', '.join(added[:3])}); move it, or give another folder")


def _files(folder: Path) -> set[str]:
    """Every file below a folder, by its path from there."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()}


def _read_marker(file: Path) -> tuple[str, list[str]]:
    try:
        made = json.loads(file.read_text(encoding="utf-8"))
        kind, files = made["kind"], made["files"]
        if isinstance(kind, str) and all(isinstance(name, str) for name in files):
            return kind, files
    except (OSError, ValueError, TypeError, KeyError):
        pass
    raise InputError(f"{file}: is damaged, so nothing says what may be replaced; give another folder or delete this one")


def _check_can_be_made(target: Path) -> None:
    above = next(folder for folder in target.parents if folder.exists())
    if not above.is_dir():
        raise InputError(f"{target}: cannot be written ({above} is a file); give a place that you may write to")
    if not os.access(above, os.W_OK | os.X_OK):
        raise InputError(f"{target}: cannot be written (no permission in {above}); give a place that you may write to")


@contextlib.contextmanager
def atomic_path(target: Path) -> Iterator[Path]:
    """The path of a fresh file beside `target` that takes its place when the block ends well, and is removed when it does not.

    Raises:
        InputError: `target` is a folder, or its parent cannot be written.
    """
    if target.is_dir():
        raise InputError(f"{target}: is a folder; give the name of a file")
    _clear_leftovers(target)
    staging = _beside(target, "partial")
    with writable(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        staging.touch()
    try:
        yield staging
        with staging.open("rb") as stream:
            os.fsync(stream.fileno())
        with writable(target):
            staging.replace(target)
    except BaseException:
        staging.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def atomic_file(target: Path) -> Iterator[IO[str]]:
    """A text file (UTF-8) that takes the place of `target` when the block ends well."""
    with atomic_path(target) as staging, staging.open("w", encoding="utf-8", newline="\n") as stream:
        yield stream


def write_text(target: Path, text: str) -> None:
    """Writes `text` to `target`, whole or not at all."""
    with atomic_file(target) as stream:
        stream.write(text)


@contextlib.contextmanager
def writable(target: Path) -> Iterator[None]:
    """Turns the system's refusal to write at `target` into an InputError; a full or failing disk is no fault of the input."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise
        raise InputError(f"{target}: cannot be written ({error.strerror}); give a place that you may write to") from None


def _beside(target: Path, role: str) -> Path:
    return target.parent / f".{target.name}.{role}-{_HOST}-{os.getpid()}"


def _clear_leftovers(target: Path) -> None:
    """Removes what killed processes of this machine left beside `target`; an output that one had moved aside is put back."""
    for role in ("old", "partial"):
        for left in target.parent.glob(f".{glob.escape(target.name)}.{role}-{glob.escape(_HOST)}-*"):
            pid = left.name.rpartition(f"{role}-{_HOST}-")[2]
            if not pid.isdigit() or Path(f"/proc/{pid}").exists():
                continue
            if role == "old" and not target.exists():
                left.rename(target)
            elif left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)
