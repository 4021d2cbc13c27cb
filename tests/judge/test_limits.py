"""What a program may use, and how going beyond it is told apart."""

from collections.abc import Callable

import pytest

from microcoder_core.judge.execution import Execution, Limits
from microcoder_core.judge.grading import failure_of
from microcoder_core.judge.judge import Judge, JudgeConfig
from microcoder_core.records import Checker, Judgement, Problem, TestCase, Verdict

Run = Callable[..., Judgement]
LIMITS = Limits(cpu_s=2.0, memory_mib=100, address_grace_mib=100, output_bytes=1 << 20)


def ended(**fields: object) -> Execution:
    known = {"exit_code": 0, "signal": None, "killed": None, "cpu_s": 0.1, "wall_s": 0.1, "memory_mib": 10.0, "overflowed": False}
    return Execution(**{**known, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "verdict"),
    [
        ({"killed": "cpu", "memory_mib": 500.0, "overflowed": True, "exit_code": None, "signal": 9}, Verdict.TIME_LIMIT_EXCEEDED),
        ({"memory_mib": 500.0, "overflowed": True, "exit_code": None, "signal": 9}, Verdict.MEMORY_LIMIT_EXCEEDED),
        ({"overflowed": True, "killed": "asked", "exit_code": None, "signal": 9}, Verdict.OUTPUT_LIMIT_EXCEEDED),
        ({"exit_code": 1, "frame": {"raised": "ValueError"}}, Verdict.RUNTIME_ERROR),
        ({"exit_code": None, "signal": 11}, Verdict.RUNTIME_ERROR),
        ({"cpu_s": 2.1}, Verdict.TIME_LIMIT_EXCEEDED),
    ],
)
def test_priority_of_failures(fields: dict[str, object], verdict: Verdict) -> None:
    failure = failure_of(ended(**fields), LIMITS)
    assert failure is not None
    assert failure[0] is verdict


def test_normal_end_is_no_failure() -> None:
    assert failure_of(ended(), LIMITS) is None


def test_cpu_limit_below_a_second_is_kept(run_stdin: Run) -> None:
    judgement = run_stdin("while True: pass", time_limit_s=0.2)
    assert judgement.verdict is Verdict.TIME_LIMIT_EXCEEDED
    assert judgement.time_s < 0.6


def test_sleeping_counts_by_the_wall_clock(run_stdin: Run) -> None:
    assert run_stdin("import time; time.sleep(0.7)", time_limit_s=0.3).verdict is Verdict.ACCEPTED
    assert run_stdin("import time; time.sleep(60)", time_limit_s=0.1).detail == "test 1: over 1.3 s of elapsed time"


@pytest.mark.parametrize(
    "program", ["x = bytearray(3 << 30)", "x = [0] * (1 << 29)", "x = bytearray(350 << 20)", "import mmap\nm = mmap.mmap(-1, 3 << 30)"]
)
def test_memory_is_told_apart_from_a_crash(run_stdin: Run, program: str) -> None:
    expected = Verdict.RUNTIME_ERROR if "mmap" in program else Verdict.MEMORY_LIMIT_EXCEEDED
    assert run_stdin(program, memory_limit_mib=256).verdict is expected


def test_thread_with_a_large_stack_fits(run_stdin: Run) -> None:
    program = (
        "import sys, threading\n"
        "sys.setrecursionlimit(10**6)\n"
        "threading.stack_size(1 << 28)\n"
        "def f(n): return 0 if n == 0 else 1 + f(n - 1)\n"
        "t = threading.Thread(target=lambda: print(f(100000)))\nt.start(); t.join()\n"
    )
    assert run_stdin(program, expected="100000", memory_limit_mib=256).verdict is Verdict.ACCEPTED


def test_deep_recursion_through_c_code_fits(run_stdin: Run) -> None:
    program = (
        "import sys, functools\nsys.setrecursionlimit(10**6)\n"
        "@functools.lru_cache(None)\ndef f(n): return 0 if n == 0 else 1 + f(n - 1)\nprint(f(20000))\n"
    )
    assert run_stdin(program, expected="20000").verdict is Verdict.ACCEPTED


def test_integers_of_any_length_are_printed_and_returned(run_stdin: Run, run_function: Run) -> None:
    assert run_stdin("print(10 ** 5000)", expected="1" + "0" * 5000).verdict is Verdict.ACCEPTED
    assert run_function("def f(n): return 10 ** n", [5000], 10**5000).verdict is Verdict.ACCEPTED
    assert run_function("def f(n): return 10 ** n + 1", [5000], 10**5000).verdict is Verdict.WRONG_ANSWER


@pytest.mark.parametrize(
    "program",
    [
        "import atexit, sys\natexit.register(lambda: sys.stdout.write('7'))",
        "out = open(1, 'w')\nout.write('7')",
        "import io, os, sys\nsys.stdout = io.TextIOWrapper(os.fdopen(1, 'wb'))\nprint(7)",
        "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.05), print(7))).start()",
        "import sys\nsys.stdout.write('7')\nsys.exit()",
        "import asyncio\nasync def main(): print(7)\nasyncio.run(main())",
        "print(open('/dev/stdin').read(), end='')",
        "from dataclasses import dataclass\n@dataclass\nclass A:\n    x: int\nprint(A(7).x)",
        "import pickle\nclass A: pass\nassert isinstance(pickle.loads(pickle.dumps(A())), A)\nprint(7)",
    ],
)
def test_program_ends_as_python_would(run_stdin: Run, program: str) -> None:
    judgement = run_stdin(program, stdin="7", expected="7")
    assert judgement.verdict is Verdict.ACCEPTED, judgement.detail


def test_hash_of_text_is_the_same_in_every_worker(run_stdin: Run) -> None:
    assert run_stdin("print(hash('a') == hash('a'), list({'a', 'b', 'c', 'd'}))", expected="x").verdict is Verdict.WRONG_ANSWER
    import os
    import subprocess
    import sys

    words = "print(*{'alpha', 'beta', 'gamma', 'delta', 'epsilon'})"
    here = subprocess.run(
        [sys.executable, "-c", words], env=os.environ | {"PYTHONHASHSEED": "0"}, capture_output=True, text=True, check=True
    )
    assert run_stdin(words, expected=here.stdout).verdict is Verdict.ACCEPTED


@pytest.mark.parametrize("code", [1, 3, 255, 256, "'text'"])
def test_exit_code_other_than_0_is_a_runtime_error(run_stdin: Run, code: object) -> None:
    expected = Verdict.ACCEPTED if code == 256 else Verdict.RUNTIME_ERROR  # the system keeps eight bits
    assert run_stdin(f"import sys; print(7); sys.exit({code})", expected="7").verdict is expected


@pytest.mark.parametrize(("length", "verdict"), [(1 << 20, Verdict.ACCEPTED), ((1 << 20) + 1, Verdict.OUTPUT_LIMIT_EXCEEDED)])
def test_output_counts_up_to_the_cap(length: int, verdict: Verdict) -> None:
    tests = (TestCase(input=f"{length}", expected="x" * (1 << 20)),)
    problem = Problem(problem_id="p", statement="s", form="stdin", tests=tests, checker=Checker(kind="tokens"))
    with Judge(JudgeConfig(workers=1, output_limit_mib=1)) as judge:
        assert judge.submit(problem, "print('x' * int(input()), end='')").result(timeout=60).verdict is verdict


def test_outputs_of_several_descriptors_follow_each_other(run_stdin: Run) -> None:
    program = (
        "import os, sys\nprint('a', flush=True)\nos.write(os.dup(1), b'b\\n')\nprint('c', flush=True)\n"
        "with open('/proc/self/fd/1', 'a') as again: again.write('d\\n')\nprint('e')"
    )
    assert run_stdin(program, expected="a\nb\nc\nd\ne").verdict is Verdict.ACCEPTED
