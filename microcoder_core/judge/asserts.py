"""Runs asserts against a program: two children of two worker processes, and the grader carries calls and results between them.

The program's child sees calls only, as any caller would make them; the asserts, and what they expect, stay in the other one.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from dataclasses import dataclass, replace
from typing import Any

from microcoder_core.judge.execution import REPORT_GRACE_S, Execution, Limits, Sink, execution, memory_file, parse_frame, sink
from microcoder_core.judge.process import ZygoteDied, ZygoteProcess
from microcoder_core.judge.zygotes import Zygotes

_CALLER_GRACE_S = 10.0
_CALLER_MEMORY_MIB = 1024
_RESULT_BYTES = 64 * 1024
_CHUNK = 256 * 1024


@dataclass(frozen=True, slots=True)
class Conversation:
    """How both children ended, and what the asserts said."""

    program: Execution
    caller: Execution
    result: dict[str, Any]
    """The frame of the asserts; empty where they sent none."""


def run_asserts(zygotes: Zygotes, source: bytes, code: bytes, entry_point: str, limits: Limits) -> Conversation:
    """Runs `check(candidate)` of `code` with the function of `source` as the candidate."""
    caller_limits = replace(limits, cpu_s=limits.cpu_s + _CALLER_GRACE_S, memory_mib=_CALLER_MEMORY_MIB)
    with _Pipes() as pipes, memory_file(source) as source_fd, memory_file(code) as code_fd, sink(_RESULT_BYTES) as result:
        program, caller = zygotes.for_programs(), zygotes.for_checkers()
        if b"numpy" in source:
            program.preload("numpy")
        program.limit_memory(limits.memory_mib)
        caller.limit_memory(caller_limits.memory_mib)
        program.send(limits.request("serve", entry_point), [source_fd, pipes.program_reads, pipes.program_writes])
        caller.send(caller_limits.request("asserts"), [code_fd, pipes.caller_reads, pipes.caller_writes, result.write_fd])
        result.close_write()
        pipes.close_theirs()
        carrier = _Carrier(program, caller, pipes, result, limits.output_bytes)
        carrier.run(time.monotonic() + caller_limits.wall_s + REPORT_GRACE_S)
        said = parse_frame(result.content) or {}
        reply = said.get("reply")
        return Conversation(
            execution(carrier.reports[program], overflowed=carrier.overflowed, frame=reply if isinstance(reply, dict) else None),
            execution(carrier.reports[caller], overflowed=False, frame=None),
            said,
        )


class _Pipes(contextlib.ExitStack):
    """Four pipes: from the grader to each child and back."""

    def __init__(self) -> None:
        super().__init__()
        self.program_reads, self.to_program = os.pipe()
        self.from_program, self.program_writes = os.pipe()
        self.caller_reads, self.to_caller = os.pipe()
        self.from_caller, self.caller_writes = os.pipe()
        self._open = {self.program_reads, self.to_program, self.from_program, self.program_writes}
        self._open |= {self.caller_reads, self.to_caller, self.from_caller, self.caller_writes}
        self.callback(self._close_all)

    def close_end(self, fd: int) -> None:
        """Closes one end, once."""
        if fd in self._open:
            self._open.remove(fd)
            os.close(fd)

    def _close_all(self) -> None:
        for fd in list(self._open):
            self.close_end(fd)

    def close_theirs(self) -> None:
        """Closes the children's ends, once they have them."""
        for fd in (self.program_reads, self.program_writes, self.caller_reads, self.caller_writes):
            self.close_end(fd)


class _Carrier:
    """Carries bytes both ways until both children have ended."""

    def __init__(self, program: ZygoteProcess, caller: ZygoteProcess, pipes: _Pipes, result: Sink, reply_cap: int) -> None:
        self._program, self._caller, self._pipes, self._result = program, caller, pipes, result
        self._left = reply_cap
        self.overflowed = False
        self.reports: dict[ZygoteProcess, dict[str, Any]] = {}

    def run(self, deadline: float) -> None:
        """Returns once there are both reports. Raises ZygoteDied where one does not come."""
        poll = select.poll()
        controls = {self._program.control.fileno(): self._program, self._caller.control.fileno(): self._caller}
        for fd in (*controls, self._pipes.from_caller, self._pipes.from_program, self._result.read_fd):
            poll.register(fd, select.POLLIN)
        while len(self.reports) < 2:
            events = poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
            if not events:
                raise ZygoteDied("no report in due time")
            for fd, _ in sorted(events, key=lambda event: event[0] in controls):  # what was written before what ended
                more = self._ended(controls[fd]) if fd in controls else self._carry(fd)
                if not more:
                    poll.unregister(fd)
        self._result.drain_rest()

    def _ended(self, child_of: ZygoteProcess) -> bool:
        self.reports[child_of] = child_of.receive()
        if child_of is self._program:
            while self._carry(self._pipes.from_program) and not self.overflowed:  # no writer is left: this ends
                pass
        self._pipes.close_end(self._pipes.to_caller if child_of is self._program else self._pipes.to_program)
        return False

    def _carry(self, fd: int) -> bool:
        """Whether `fd` may have more to come."""
        if fd == self._result.read_fd:
            return self._result.drain()
        chunk = os.read(fd, _CHUNK)
        if fd == self._pipes.from_caller:
            self._write(self._pipes.to_program, chunk)
            return bool(chunk)
        self._left -= len(chunk)
        if self._left < 0:
            self.overflowed = True
            if self._program not in self.reports:
                self._program.send({"mode": "kill"})
            return False
        self._write(self._pipes.to_caller, chunk)
        return bool(chunk)

    @staticmethod
    def _write(fd: int, chunk: bytes) -> None:
        left = memoryview(chunk)
        with contextlib.suppress(OSError):  # the reader has ended: its own report says how
            while left:
                left = left[os.write(fd, left) :]
