"""The zygote: started once a worker, it forks a confined child for each run and watches its clocks.

It never reads a program, an input or an output: they are in files that it passes on to its children. One request is one message on the
control socket, a JSON object; the answer to it is one report. Descriptors that come with a request take the place of those that it holds,
so that the runs of one program after the first bring none.
"""

import _socket as socket  # without its other half, written in Python: what is loaded here costs every fork
import array
import atexit
import contextlib
import ctypes
import gc
import json
import os
import resource
import select
import signal
import sys
import time
import types
from typing import Any, NoReturn

from . import child, confine, frames, namespaces, probe, scratch

_WARM = "array bisect cmath collections copy functools heapq io itertools math operator re string struct time typing"
"""What programs import most: done once here, it costs no test anything. Each further module makes forks dearer (40 of them: 0.7 ms), above
all those that have something to do after a fork: threading 0.3 ms, random 0.1."""
_TALKING = ("serve", "asserts")
"""Modes whose descriptors are pipes, of which no end may stay open here."""
_MESSAGE_BYTES = 65536
_MAX_FDS = 8


def main() -> NoReturn:
    """Reads the settings from the command line, enters the sandbox and serves until the grader hangs up."""
    settings = json.loads(sys.argv[1])
    for fd in settings.pop("join_fds", ()):
        with contextlib.suppress(OSError):  # the grader sees whether it is in
            os.write(fd, b"0")
        os.close(fd)
    if settings.pop("relaunch", False):
        _relaunch(settings)
    libc = ctypes.CDLL(None, use_errno=True)
    confine.die_with_parent(libc, settings["parent"])
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # a program that writes without end is ended
    control = socket.socket(fileno=settings["control_fd"])
    with open(settings["values"], encoding="utf-8") as stream:
        codec = frames.Codec(stream.read())
    layers = [] if settings["level"] == "bare" else _enter_namespaces(libc, settings, control)
    has_own_root = "mount_namespace" in layers
    folder = namespaces.SCRATCH if has_own_root else settings["work"]
    confinement = confine.Confinement(libc, settings["readable"], folder, settings["filtered"], settings["landlock"], has_own_root)
    if settings["filtered"]:
        if not layers and "landlock" not in confinement.layers and confine.become_nobody(os.path.dirname(os.__file__)):
            layers.append("nobody")
        confine.close_memory(libc)  # not before: a process whose memory is closed may not map its user
    _warm_up(settings["packages"])
    confinement.enter()
    os.chdir(folder)
    held = probe.held_layers(libc, confinement)
    control.send(json.dumps({"layers": held + layers}).encode())
    Zygote(control, codec, confinement, folder).serve()


def _relaunch(settings: dict[str, Any]) -> NoReturn:
    """Starts this script again with an unlimited stack, since the room for the stack is laid out when a process starts."""
    hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
    resource.setrlimit(resource.RLIMIT_STACK, (hard, hard))
    os.execv(sys.executable, [*sys.orig_argv[:-1], json.dumps(settings)])


def _enter_namespaces(libc: ctypes.CDLL, settings: dict[str, Any], control: socket.socket) -> list[str]:
    """Goes on as process 1 of new namespaces; the process that came here waits outside."""
    layers = namespaces.enter(libc, settings["level"] == "full")
    confine.die_with_parent(libc, settings["parent"])  # new credentials forget it
    pid = os.fork()
    if pid:
        control.close()
        os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 0xFF)
    confine.die_with_parent(libc, 0)  # a parent outside the namespace reads as 0
    if settings["level"] == "full":
        namespaces.change_root(libc, settings["readable"], settings["work"])
    return layers


def _warm_up(packages: list[str]) -> None:
    for name in _WARM.split():
        __import__(name)
    child.prepare_prelude()
    import _sitebuiltins
    import builtins

    for name in ("exit", "quit"):
        setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D"))
    sys.path[:] = [path for path in sys.path[1:] if os.path.isdir(path)] + packages  # the first was put there to load this package
    for name in [name for name in sys.modules if name == "sandbox" or name.startswith("sandbox.")]:
        del sys.modules[name]
    sys.modules["__main__"] = types.ModuleType("__main__")
    sys.argv[:] = ["main.py"]
    atexit._clear()
    gc.collect()
    gc.freeze()


class Zygote:
    """Forks and watches one child at a time."""

    def __init__(self, control: socket.socket, codec: frames.Codec, confinement: confine.Confinement, folder: str) -> None:
        self._control = control
        self._codec = codec
        self._confinement = confinement
        self._folder = folder
        self._fds: list[int] = []
        self._is_ready, self._ready = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def serve(self) -> NoReturn:
        """Answers requests until the control socket ends."""
        while True:
            request, fds = self._receive()
            if request is None:
                os._exit(0)
            if request["mode"] == "kill":  # the child ended before the word reached it
                continue
            if request["mode"] == "import":
                with contextlib.suppress(Exception):
                    __import__(request["name"])
                gc.freeze()
                continue
            if fds:
                self._hold(fds)
            pid = os.fork()
            if pid == 0:
                self._run(request)
            if request["mode"] in _TALKING:
                self._hold([])
            report = self._watch(pid, request)
            report["was_ready"] = self._was_ready()
            report["wiped"] = self._wipe()
            self._control.send(json.dumps(report).encode())

    def _hold(self, fds: list[int]) -> None:
        for fd in self._fds:
            os.close(fd)
        self._fds = fds

    def _was_ready(self) -> bool:
        """Whether the child said that it was confined before it ran anything."""
        try:
            return bool(os.read(self._is_ready, 1))
        except BlockingIOError:
            return False

    def _receive(self) -> tuple[dict[str, Any] | None, list[int]]:
        room = socket.CMSG_SPACE(_MAX_FDS * array.array("i").itemsize)
        message, ancillary, _, _ = self._control.recvmsg(_MESSAGE_BYTES, room)
        fds = array.array("i")
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
        return (json.loads(message) if message else None), list(fds)

    def _run(self, request: dict[str, Any]) -> NoReturn:
        """In the child: confines itself, says that it could, keeps its own descriptors only, runs."""
        try:
            mode, fds = request["mode"], self._fds
            if mode == "stdin":
                os.dup2(fds[2], 0)
                os.dup2(fds[3], 1)
                fds = [fds[0], fds[1], fds[4]]
            if mode == "function":
                fds = fds[:4]  # its result takes the place of a note
            self._confinement.apply(request)
            os.write(self._ready, b"1")
            _close_all_but(fds)
            if mode == "stdin":
                child.run_stdin(self._codec, *fds)
            if mode == "function":
                child.run_function(self._codec, fds, request["entry_point"])
            if mode == "serve":
                child.serve_function(self._codec, fds, request["entry_point"])
            if mode == "asserts":
                child.run_asserts(self._codec, *fds)
        finally:
            os._exit(70)

    def _watch(self, pid: int, request: dict[str, Any]) -> dict[str, Any]:
        """Waits for the child, and kills it when a clock has run out or the grader says so."""
        started = time.monotonic()
        killed = None
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        with _ending(pid) as ending_fd:
            if ending_fd is not None:
                poll.register(ending_fd, select.POLLIN)
            while killed is None:
                wall_left = request["wall_s"] - (time.monotonic() - started)
                cpu_left = request["cpu_s"] - cpu_clock(pid)
                if wall_left <= 0 or cpu_left <= 0:
                    killed = "wall" if cpu_left > 0 else "cpu"
                    break
                wait_s = min(wall_left, max(cpu_left, 0.005)) if ending_fd is not None else 0.002
                ready = [fd for fd, _ in poll.poll(wait_s * 1000)]
                if self._control.fileno() in ready:
                    killed = self._told()
                elif ready or (ending_fd is None and _has_ended(pid)):
                    break
        if killed:
            _kill(pid)
        _, status, usage = os.wait4(pid, 0)
        return {
            "exit_code": os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
            "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
            "killed": killed,
            "cpu_s": usage.ru_utime + usage.ru_stime,
            "wall_s": time.monotonic() - started,
            "memory_mib": usage.ru_maxrss / 1024,
        }

    def _told(self) -> str:
        """The grader spoke while a child runs: to kill it, or it has gone."""
        if not self._control.recv(_MESSAGE_BYTES):
            os._exit(0)  # the child dies with its parent
        return "asked"

    def _wipe(self) -> bool:
        """Whether the scratch folder is empty again."""
        try:
            scratch.empty_folder(self._folder)
        except OSError:
            return False
        return True


def cpu_clock(pid: int) -> float:
    """CPU seconds that process `pid` has used; 0 once it has ended."""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0


@contextlib.contextmanager
def _ending(pid: int) -> Any:
    """A descriptor that is readable once the process has ended; None where the kernel has none."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        yield None
        return
    try:
        yield fd
    finally:
        os.close(fd)


def _has_ended(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _kill(pid: int) -> None:
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(OSError):
            kill(pid, signal.SIGKILL)


def _close_all_but(fds: list[int]) -> None:
    low = 3
    for fd in sorted(fds):
        os.closerange(low, fd)
        low = fd + 1
    os.closerange(low, 65536)
