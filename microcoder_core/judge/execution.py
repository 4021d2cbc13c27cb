"""One run of a program in a zygote's child: descriptors in, what it wrote and how it ended out.

Everything that comes from the child is untrusted: output is capped while it is drained, frames are length-capped strict JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from microcoder_core.judge.process import ZygoteDied, ZygoteProcess

MIB = 1024 * 1024
_CHUNK = 256 * 1024
_REPORT_GRACE_S = 20.0
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


@contextlib.contextmanager
def memory_file(content: bytes) -> Iterator[int]:
    """A file in memory that a child may read."""
    fd = os.memfd_create("judge", os.MFD_CLOEXEC)
    try:
        left = memoryview(content)
        while left:
            left = left[os.write(fd, left) :]
        os.lseek(fd, 0, os.SEEK_SET)
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def sink(cap: int) -> Iterator[Sink]:
    """A sink, closed at the end of the block."""
    made = Sink(cap)
    try:
        yield made
    finally:
        made.close()


def run_stdin(zygote: ZygoteProcess, source_fd: int, stdin: bytes, limits: Limits) -> Execution:
    """Runs a whole program on `stdin`."""
    with memory_file(stdin) as stdin_fd, sink(limits.output_bytes) as out, sink(_NOTE_BYTES) as note:
        zygote.send(limits.request("stdin"), [source_fd, stdin_fd, out.write_fd, note.write_fd])
        report = watch(zygote, [out, note], limits)
        return execution(report, overflowed=out.overflowed, output=out.content, frame=parse_frame(note.content))


def run_function(zygote: ZygoteProcess, source_fd: int, arguments: bytes, entry_point: str, limits: Limits) -> Execution:
    """Calls one function with the arguments of `arguments` (tagged JSON)."""
    with memory_file(arguments) as arguments_fd, sink(limits.output_bytes) as result:
        zygote.send(limits.request("function", entry_point), [source_fd, arguments_fd, result.write_fd])
        report = watch(zygote, [result], limits)
        return execution(report, overflowed=result.overflowed, frame=parse_frame(result.content))


def watch(zygote: ZygoteProcess, sinks: list[Sink], limits: Limits) -> dict[str, Any]:
    """Drains `sinks` until the child has ended, and returns the zygote's report.

    Raises:
        ZygoteDied: No report in due time.
    """
    poll = select.poll()
    poll.register(zygote.control, select.POLLIN)
    by_fd = {each.read_fd: each for each in sinks}
    for each in sinks:
        each.close_write()
        poll.register(each.read_fd, select.POLLIN)
    deadline = time.monotonic() + limits.wall_s + _REPORT_GRACE_S
    told = False
    while True:
        events = poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
        if not events:
            raise ZygoteDied("no report in due time")
        ready = [fd for fd, _ in events]
        for fd in ready:
            if fd in by_fd and not by_fd[fd].drain():
                poll.unregister(fd)
            elif fd in by_fd and by_fd[fd].overflowed and not told:
                zygote.send({"mode": "kill"})
                told = True
                poll.unregister(fd)
        if zygote.control.fileno() in ready:
            report = zygote.receive()
            for each in sinks:
                each.drain_rest()
            return report


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
