"""Runs the whole attack suite in the surroundings that it is started in, and tells what got through.

    python -m tests.judge.attack_tier [--sandbox MODE] [--forbid unshare] [--forbid landlock]

The last line is a JSON object: layers that held, number of attacks, those that were accepted or that the judge failed on, seconds of the
slowest answer to the program after an attack, what is left behind (files, processes, control groups). Exit code 1 where anything is wrong.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import json
import os
import struct
import sys
import tempfile
import time
from pathlib import Path

from microcoder_core.judge.judge import Judge, JudgeConfig
from microcoder_core.records import Problem, TestCase, Verdict
from tests.judge.attacks import attacks
from tests.processes import groups_of_this_process, workers_of

_NUMBERS = {"x86_64": {"unshare": (272,), "landlock": (444, 445, 446)}, "aarch64": {"unshare": (97,), "landlock": (444, 445, 446)}}
_ERRORS = {"unshare": errno.EPERM, "landlock": errno.ENOSYS}
_PLACES_OF_TRACES = ("/var/tmp", "/dev/shm", "/tmp")


def forbid(name: str) -> None:
    """Has the kernel refuse calls to this process and all that it starts, as a pod's profile or gVisor would."""
    number_at, allow, refuse = 0, 0x7FFF0000, 0x00050000 | _ERRORS[name]
    code = [(0x20, 0, 0, number_at)]
    for number in _NUMBERS[os.uname().machine][name]:
        code += [(0x15, 0, 1, number), (0x06, 0, 0, refuse)]
    code.append((0x06, 0, 0, allow))
    text = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in code))
    program = struct.pack("HxxxxxxQ", len(code), ctypes.addressof(text))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program, 0, 0):
        raise OSError(ctypes.get_errno(), "no seccomp filter")


def run(sandbox: str) -> dict[str, object]:
    """The findings of one tier."""
    echo = Problem(problem_id="echo", statement="s", form="stdin", tests=(TestCase(input="7\n", expected="7\n"),))
    let_through, slowest, count = [], 0.0, 0
    before = _traces()
    with tempfile.TemporaryDirectory() as scratch:
        tempfile.tempdir = scratch
        with Judge(JudgeConfig(workers=1, sandbox=sandbox)) as judge:
            for name, problem, program in attacks():
                count += 1
                judgement = judge.submit(problem, program).result(timeout=120)
                started = time.monotonic()
                after = judge.submit(echo, "print(input())").result(timeout=120)
                slowest = max(slowest, time.monotonic() - started)
                if judgement.verdict in (Verdict.ACCEPTED, Verdict.JUDGE_ERROR) or after.verdict is not Verdict.ACCEPTED:
                    let_through.append(f"{name}: {judgement.verdict} {judgement.detail}; after it: {after.verdict} {after.detail}")
        tempfile.tempdir = None
        left = [*sorted(os.listdir(scratch)), *sorted(_traces() - before), *workers_of(os.getpid())]
    return {"layers": judge.layers, "attacks": count, "let_through": let_through, "slowest_after_s": round(slowest, 3), "left": left}


def _traces() -> set[str]:
    files = {str(file) for place in _PLACES_OF_TRACES for file in Path(place).glob("*left-behind*")}
    return files | groups_of_this_process()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--sandbox", default="auto")
    parser.add_argument("--forbid", action="append", default=[], choices=sorted(_ERRORS))
    options = parser.parse_args()
    for each in options.forbid:
        forbid(each)
    findings = run(options.sandbox)
    sys.stdout.write(json.dumps(findings) + "\n")
    sys.exit(bool(findings["let_through"] or findings["left"]))
