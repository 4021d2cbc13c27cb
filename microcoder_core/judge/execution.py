"""One run of a program in a zygote's child: descriptors in, what it wrote and how it ended out.

Everything that comes from the child is untrusted: output is capped while it is drained, frames are length-capped strict JSON.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn, Self

from microcoder_core.judge.process import ZygoteProcess

MIB = 1024 * 1024
_CHUNK = 256 * 1024
REPORT_GRACE_S = 20.0
"""Seconds beyond the elapsed time of a run until its report must have come."""
_NOTE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one test may use."""

    cpu_s: float
    memory_mib: int
    address_grace_mib: int
    output_bytes: int

    @property
    def wall_s(self) -> float:
        """Elapsed seconds: three times the CPU limit and one more, so that load on the machine fails nobody."""
        return 3 * self.cpu_s + 1

    def request(self, mode: str, entry_point: str = "") -> dict[str, Any]:
        """The request to a zygote for a run under these limits."""
        return {
            "mode": mode,
            "entry_point": entry_point,
            "cpu_s": self.cpu_s,
            "wall_s": self.wall_s,
            "memory_mib": self.memory_mib,
            "address_grace_mib": self.address_grace_mib,
            "output_bytes": self.output_bytes,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """How a run ended."""

    exit_code: int | None
    signal: int | None
    killed: str | None
    """`cpu`, `wall`, `asked` (by the grader) or null."""
    cpu_s: float
    wall_s: float
    memory_mib: float
    overflowed: bool
    """Whether it wrote more than its cap."""
    output: bytes = b""
    frame: dict[str, Any] | None = None
    """The one frame that it sent; null where it sent none, more than one, or something else."""


class Sink:
    """Drains a pipe into memory up to a cap."""

    def __init__(self, cap: int) -> None:
        self.read_fd, self.write_fd = os.pipe()
        os.set_blocking(self.read_fd, False)
        self._parts: list[bytes] = []
        self._left = cap
        self.overflowed = False

    @property
    def content(self) -> bytes:
        return b"".join(self._parts)

    def drain(self) -> bool:
        """Takes what is there; False once there will be no more."""
        try:
            chunk = os.read(self.read_fd, _CHUNK)
        except BlockingIOError:
            return True
        if len(chunk) > self._left:
            self.overflowed = True
        else:
            self._left -= len(chunk)
            self._parts.append(chunk)
        return bool(chunk)

    def drain_rest(self) -> None:
        """Takes what is left after all writers have ended."""
        with contextlib.suppress(BlockingIOError):
            while not self.overflowed:
                chunk = os.read(self.read_fd, _CHUNK)
                if not chunk:
                    return
                self._left -= len(chunk)
                self.overflowed = self._left < 0
                self._parts.append(chunk)

    def close_write(self) -> None:
        if self.write_fd >= 0:
            os.close(self.write_fd)
            self.write_fd = -1

    def close(self) -> None:
        self.close_write()
        os.close(self.read_fd)


class RunFiles:
    """The files, in memory, that the runs of one program share with the grader. Use as a context manager.

    Its source, its compiled code (left by its first run for the next ones), what it reads, what it writes or returns, its note.
    """

    def __init__(self, source: bytes) -> None:
        with contextlib.ExitStack() as opened:  # closed again where one of them cannot be had
            self._source, self._code, self._input, self._output, self._note = (opened.enter_context(memory_file()) for _ in range(5))
            _fill(self._source, source)
            fcntl.fcntl(self._output, fcntl.F_SETFL, os.O_APPEND)  # as a pipe takes what is written through several descriptors
            self._files = opened.pop_all()
        self._unsent = [self._source, self._code, self._input, self._output, self._note]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def to_send(self) -> list[int]:
        """The descriptors for a zygote, once."""
        fds, self._unsent = self._unsent, []
        return fds

    def load(self, content: bytes) -> None:
        """Makes ready for a run that reads `content`."""
        for fd in (self._output, self._note):
            os.ftruncate(fd, 0)
            os.lseek(fd, 0, os.SEEK_SET)
        _fill(self._input, content)

    def output(self, cap: int) -> tuple[bytes, bool]:
        """What the run wrote, nothing if that is more than `cap`, and whether it is."""
        return _content(self._output, cap)

    def note(self) -> bytes:
        """What the run noted, beside what it wrote."""
        return _content(self._note, _NOTE_BYTES)[0]


@contextlib.contextmanager
def memory_file(content: bytes = b"") -> Iterator[int]:
    """A file in memory that a child may read and write."""
    fd = os.memfd_create("judge", os.MFD_CLOEXEC)
    try:
        if content:
            _fill(fd, content)
        yield fd
    finally:
        os.close(fd)


def _fill(fd: int, content: bytes) -> None:
    os.ftruncate(fd, 0)
    os.lseek(fd, 0, os.SEEK_SET)
    left = memoryview(content)
    while left:
        left = left[os.write(fd, left) :]
    os.lseek(fd, 0, os.SEEK_SET)


def _content(fd: int, cap: int) -> tuple[bytes, bool]:
    size = os.fstat(fd).st_size
    if size > cap:
        return b"", True
    return os.pread(fd, size, 0), False


@contextlib.contextmanager
def sink(cap: int) -> Iterator[Sink]:
    """A sink, closed at the end of the block."""
    made = Sink(cap)
    try:
        yield made
    finally:
        made.close()


def run_stdin(zygote: ZygoteProcess, files: RunFiles, stdin: bytes, limits: Limits) -> Execution:
    """Runs a whole program on `stdin`. Raises ZygoteDied where no report comes in due time."""
    report = _run(zygote, files, stdin, limits, limits.request("stdin"))
    output, overflowed = files.output(limits.output_bytes)
    return execution(report, overflowed=overflowed, output=output, frame=parse_frame(files.note()))


def run_function(zygote: ZygoteProcess, files: RunFiles, arguments: bytes, entry_point: str, limits: Limits) -> Execution:
    """Calls one function with `arguments`: marshalled, a list or tagged JSON as bytes. Raises ZygoteDied as `run_stdin` does."""
    report = _run(zygote, files, arguments, limits, limits.request("function", entry_point))
    output, overflowed = files.output(limits.output_bytes)
    return execution(report, overflowed=overflowed, frame=parse_frame(output))


def _run(zygote: ZygoteProcess, files: RunFiles, content: bytes, limits: Limits, request: dict[str, Any]) -> dict[str, Any]:
    zygote.limit_memory(limits.memory_mib)
    files.load(content)
    zygote.send(request, files.to_send())
    return zygote.receive(limits.wall_s + REPORT_GRACE_S)


def parse_frame(content: bytes) -> dict[str, Any] | None:
    """The one frame in `content`; None for anything else."""
    if len(content) < 4 or int.from_bytes(content[:4], "big") != len(content) - 4:
        return None
    try:
        frame = json.loads(content[4:], parse_int=_whole_number, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return frame if isinstance(frame, dict) else None


class LongInteger(str):
    """A whole number too long for `int` to read at a bearable price: its digits, compared as text."""


def _whole_number(digits: str) -> int | LongInteger:
    return int(digits) if len(digits) <= 4000 else LongInteger(digits)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def execution(report: dict[str, Any], *, overflowed: bool, output: bytes = b"", frame: dict[str, Any] | None) -> Execution:
    """The run that a zygote's report tells of."""
    names = ("exit_code", "signal", "killed", "cpu_s", "wall_s", "memory_mib")
    return Execution(**{name: report[name] for name in names}, overflowed=overflowed, output=output, frame=frame)
