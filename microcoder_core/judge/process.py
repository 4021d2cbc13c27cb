"""The grader's side of a zygote: starts it, hands it descriptors, reads its reports.

Covers: choosing the strongest sandbox that the system allows, and telling which layers hold.
Does not cover: what runs mean (`execution`), verdicts (`grading`).
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from microcoder_core import values
from microcoder_core.errors import JudgeError
from microcoder_core.judge.cgroups import PREFIX, ControlGroup, groups_left
from microcoder_core.judge.config import JudgeConfig
from microcoder_core.judge.sandbox.scratch import remove_folder

MINIMUM = ("own_process", "rlimits", "no_new_privs", "seccomp")
"""The layers below which the judge refuses to run programs, with one of `FILES_CONFINED`."""
FILES_CONFINED = {"landlock", "mount_namespace", "read_only"}
"""Each keeps a program from changing files that are not its own."""
LEVELS = ("full", "no_mounts", "bare")
"""Namespaces with a root of their own, namespaces alone, none: the first that starts is used."""
START_TIMEOUT_S = 30.0
_BOOT = "import sys; sys.path.insert(0, {folder!r}); from sandbox.zygote import main; main()"
_SYSTEM_READABLE = (
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/share/zoneinfo",
    "/etc/localtime",
    "/etc/ld.so.cache",
    "/dev/random",
    "/dev/urandom",
)
_ENVIRONMENT = {
    "LC_ALL": "C.UTF-8",
    "HOME": "/tmp",
    "PYTHONHASHSEED": "0",  # the order of a set of text is the same in every worker
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
_PR_SET_DUMPABLE = 4


class ZygoteDied(Exception):
    """The zygote ended or fell silent while it was needed."""


class ZygoteOutOfMemory(ZygoteDied):
    """The system has ended the zygote itself, since its program brought its control group over the limit."""


class ZygoteProcess:
    """A running zygote. Use from the thread that made it: the kernel ends a zygote together with that thread.

    Raises:
        JudgeError: None starts, or its sandbox is below the minimum and the configuration does not say `none`.
    """

    layers: tuple[str, ...]
    """The layers that hold, tested from inside."""
    is_soiled = False
    """Whether a child left something in the scratch folder that could not be removed: then start anew."""

    def __init__(self, config: JudgeConfig, levels: Sequence[str] = LEVELS) -> None:
        self._config = config
        self._levels = ("bare",) if config.sandbox != "auto" else tuple(levels)
        self._preloaded: set[str] = set()
        self._known_kills = 0
        for level in self._levels:
            if self._start(level, config.sandbox == "auto"):
                self.level = level
                self._require_minimum()
                return
        raise JudgeError(f"no worker process could start (tried {', '.join(self._levels)}); try `microcoder doctor`")

    def _start(self, level: str, is_grouped: bool) -> bool:
        self._at_end = contextlib.ExitStack()
        try:
            self._launch(level, is_grouped)
            self.layers = (*self.receive()["layers"], *self._group.layers)
        except ZygoteDied:
            self.close()
            return False
        except OSError:
            self.close()
            raise
        return True

    def _launch(self, level: str, is_grouped: bool) -> None:
        work = tempfile.mkdtemp(prefix=f"{PREFIX}{_pid_namespace()}-{os.getpid()}-")
        self._at_end.callback(_remove_quietly, work)
        self._group = ControlGroup.make(os.path.basename(work)) if is_grouped else ControlGroup({})
        self._at_end.callback(self._group.remove)
        self._group.limit_memory(self._config.memory_limit_mib)
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._at_end.callback(self.control.close)
        join_fds = self._group.open_to_join()
        settings = _settings(self._config, level, theirs.fileno(), work) | {"join_fds": join_fds}
        boot = _BOOT.format(folder=str(Path(__file__).parent))
        command = [sys.executable, "-P", "-s", "-S", "-B", "-X", "utf8", "-X", "int_max_str_digits=0", "-c", boot, json.dumps(settings)]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=_ENVIRONMENT | {"TMPDIR": work if level != "full" else "/tmp"},
                pass_fds=[theirs.fileno(), *join_fds],
                start_new_session=True,
            )
        finally:
            theirs.close()
            for fd in join_fds:
                os.close(fd)
        self._at_end.callback(self._wait)

    def _require_minimum(self) -> None:
        missing = [layer for layer in MINIMUM if layer not in self.layers]
        if not FILES_CONFINED & set(self.layers):
            missing.append("read_only")
        if missing and self._config.sandbox != "none":
            self.close()
            raise JudgeError(
                f"the sandbox is below the minimum: {', '.join(missing)} does not hold here; see `microcoder doctor`, or judge "
                "programs that you trust with --sandbox none"
            )

    def send(self, request: dict[str, Any], fds: Iterable[int] = ()) -> None:
        """Sends one request with its descriptors."""
        try:
            socket.send_fds(self.control, [json.dumps(request).encode()], list(fds))
        except OSError as error:
            raise ZygoteDied(str(error)) from None

    def receive(self, timeout_s: float = START_TIMEOUT_S) -> dict[str, Any]:
        """The next report. Raises ZygoteDied where it does not come in time."""
        self.control.settimeout(timeout_s)
        try:
            message = self.control.recv(65536)
        except OSError as error:
            raise ZygoteDied(str(error)) from None
        if not message:
            was_killed = self._group.memory_kills() > self._known_kills
            raise (ZygoteOutOfMemory if was_killed else ZygoteDied)("the worker process has ended")
        report: dict[str, Any] = json.loads(message)
        if report.get("signal") == signal.SIGKILL:
            self._known_kills = self._group.memory_kills()
        self.is_soiled = self.is_soiled or not report.get("wiped", True)
        if not report.get("was_ready", True):
            raise ZygoteDied("a child could not be confined")
        return report

    def limit_memory(self, program_mib: int) -> None:
        """Bounds what a program and this worker may hold together, where control groups can be used."""
        self._group.limit_memory(program_mib)

    def preload(self, name: str) -> None:
        """Imports a package once in the zygote, so that each child has it already."""
        if self._config.packages and name not in self._preloaded:
            self._preloaded.add(name)
            self.send({"mode": "import", "name": name})

    def interrupt(self) -> None:
        """Ends what runs; the thread that waits for it sees the zygote as lost. May be called from any thread."""
        with contextlib.suppress(OSError):
            self.control.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Ends the zygote and all its children."""
        self._at_end.close()

    def _wait(self) -> None:
        self.control.close()  # upon which it ends
        try:
            self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _remove_quietly(folder: str) -> None:
    with contextlib.suppress(OSError):
        remove_folder(folder)


def _settings(config: JudgeConfig, level: str, control_fd: int, work: str) -> dict[str, Any]:
    packages = _packages() if config.packages else []
    return {
        "relaunch": True,
        "parent": os.getpid(),
        "control_fd": control_fd,
        "level": level,
        "filtered": config.sandbox != "none",
        "landlock": config.sandbox == "auto",
        "values": values.__file__,
        "packages": packages,
        "readable": sorted({sysconfig.get_path("stdlib"), os.path.join(sys.base_prefix, "lib"), *packages, *_SYSTEM_READABLE}),
        "work": work,
    }


def _packages() -> list[str]:
    return sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})


def remove_leftovers() -> None:
    """Removes what judges of this user left that were killed; other containers' processes cannot be looked up from here."""
    mine = f"{PREFIX}{_pid_namespace()}-"
    for folder in (*Path(tempfile.gettempdir()).glob(f"{mine}*"), *groups_left()):
        pid = folder.name.split("-")[-2]
        with contextlib.suppress(OSError):
            if folder.name.startswith(mine) and not Path(f"/proc/{pid}").exists() and folder.stat().st_uid == os.geteuid():
                folder.rmdir() if (folder / "cgroup.procs").exists() else remove_folder(str(folder))


def _pid_namespace() -> str:
    """Names the process namespace, inside which a process identifier means one process."""
    try:
        return os.readlink("/proc/self/ns/pid").strip("pid:[]")
    except OSError:
        return socket.gethostname()


def close_own_memory() -> None:
    """Keeps processes of the same user from reading this one's memory, where expected outputs are."""
    with contextlib.suppress(OSError):
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
