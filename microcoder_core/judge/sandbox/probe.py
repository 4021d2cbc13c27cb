"""Tries to break out of a confined child, so that the judge reports what holds rather than what was asked for."""

import _socket as socket
import ctypes
import errno
import json
import os
import resource
import sys
from collections.abc import Callable

from .confine import Confinement

_LIMITS = {"cpu_s": 5, "memory_mib": 512, "address_grace_mib": 512, "output_bytes": 0}
_REFUSALS = (errno.EPERM, errno.EACCES, errno.EROFS, errno.ENOENT)
_READABLE_BY_ALL = "/proc/version"
_PR_GET_NO_NEW_PRIVS = 39


def held_layers(libc: ctypes.CDLL, confinement: Confinement) -> list[str]:
    """The layers of `confinement` that withstood an attempt each; empty where a confined child cannot even run."""
    read_fd, write_fd = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            confinement.apply(_LIMITS)
            tests = _tests(libc)
            os.write(write_fd, json.dumps([name for name in confinement.layers if tests[name]()]).encode())
        finally:
            os._exit(0)
    os.close(write_fd)
    with open(read_fd, "rb") as stream:
        answer = stream.read()
    os.waitpid(pid, 0)
    return list(json.loads(answer)) if answer else []


def _tests(libc: ctypes.CDLL) -> dict[str, Callable[[], bool]]:
    return {
        "own_process": lambda: os.getsid(0) == os.getpid() and _is_refused(_open_parent_memory),
        "rlimits": lambda: resource.getrlimit(resource.RLIMIT_CORE) == (0, 0),
        "no_new_privs": lambda: libc.prctl(_PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1,
        "seccomp": lambda: all(_is_refused(attempt) for attempt in (_fork, _socket, _signal, _execute)),
        "read_only": lambda: all(_is_refused(attempt) for attempt in (_make_file, _make_folder)),
        "landlock": lambda: _is_refused(_read_foreign_file),
    }


def _is_refused(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except OSError as error:
        return error.errno in _REFUSALS
    return False


def _open_parent_memory() -> None:
    os.close(os.open(f"/proc/{os.getppid()}/mem", os.O_RDWR))


def _fork() -> None:
    if os.fork() == 0:
        os._exit(0)


def _socket() -> None:
    socket.socket().close()


def _signal() -> None:
    os.kill(os.getpid(), 0)


def _execute() -> None:
    os.execv(sys.executable, [sys.executable, "-c", ""])


def _make_file() -> None:
    os.close(os.open("probe", os.O_CREAT | os.O_WRONLY))
    os.unlink("probe")


def _make_folder() -> None:
    os.mkdir("probe")
    os.rmdir("probe")


def _read_foreign_file() -> None:
    with open(_READABLE_BY_ALL) as stream:
        stream.read()
