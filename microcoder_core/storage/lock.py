"""A folder held by one process at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from microcoder_core.errors import InputError
from microcoder_core.storage.atomic import writable

LOCK_FILE = "run.lock"


@contextlib.contextmanager
def locked_folder(folder: Path) -> Iterator[int]:
    """Holds `folder` until the end of the block, and makes it where it is absent; yields a descriptor by which a child may hold it too.

    Where the block fails, neither a lock nor an empty folder that was made here is left.

    Raises:
        InputError: Another process holds it, or it cannot be written.
    """
    file = folder / LOCK_FILE
    is_new, was_free = not folder.exists(), not file.exists()
    with writable(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = file.open("a")
    with lock:
        if not _take(lock, file):
            raise InputError(f"{folder}: another run is at work in it; wait for its end or give another folder")
        try:
            yield lock.fileno()
        except BaseException:
            if was_free:
                file.unlink(missing_ok=True)
            if is_new:
                with contextlib.suppress(OSError):  # what was made in it stays
                    folder.rmdir()
            raise


def _take(lock: IO[str], file: Path) -> bool:
    """Whether the lock is ours, and still the file that others find."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.fstat(lock.fileno()).st_ino == file.stat().st_ino
    except (BlockingIOError, FileNotFoundError):
        return False
