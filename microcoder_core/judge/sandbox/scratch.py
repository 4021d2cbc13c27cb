"""Removes what a program left, whatever it made of it: folders nested too deeply for recursion or for a path, without rights, links."""

import contextlib
import os

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def empty_folder(path: str) -> None:
    """Removes all that is in a folder. Call it when no process that could change it is alive. Raises OSError where something stays.

    Goes down by descriptors and up by `..`, so that neither depth nor path length matters.
    """
    with contextlib.suppress(PermissionError):  # a folder of another user, whose rights no program could take
        os.chmod(path, 0o700)
    folder = os.open(path, _FOLDER)
    above: list[str] = []
    try:
        while True:
            inner = _remove_files(folder)
            if inner is not None:
                os.chmod(inner, 0o700, dir_fd=folder)
                folder = _move(folder, inner)
                above.append(inner)
            elif above:
                folder = _move(folder, "..")
                os.rmdir(above.pop(), dir_fd=folder)
            else:
                return
    finally:
        os.close(folder)


def remove_folder(path: str) -> None:
    """Removes a folder with all that is in it. Raises OSError as `empty_folder` does."""
    empty_folder(path)
    os.rmdir(path)


def _remove_files(folder: int) -> str | None:
    """Removes files of a folder until it meets a folder in it, whose name it returns; None where there is none."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                return entry.name
            os.unlink(entry.name, dir_fd=folder)
    return None


def _move(folder: int, name: str) -> int:
    moved = os.open(name, _FOLDER, dir_fd=folder)
    os.close(folder)
    return moved
