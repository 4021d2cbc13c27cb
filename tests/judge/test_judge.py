"""The Judge API: order, verdicts, faults of our own, nothing left behind."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from microcoder_core.errors import JudgeError
from microcoder_core.judge import process as process_module
from microcoder_core.judge import zygotes as zygotes_module
from microcoder_core.judge.execution import RunFiles
from microcoder_core.judge.judge import Judge, JudgeConfig
from microcoder_core.judge.process import ZygoteProcess
from microcoder_core.records import Checker, Outcome, Problem, TestCase, Verdict
from tests.processes import groups_of_this_process, pid_of_an_ended_process

RIGHT = "def double(x):\n    return 2 * x\n"


def checked(code: str) -> Problem:
    checker = Checker(kind="program", code=code)
    return Problem(problem_id="p", statement="s", form="stdin", tests=(TestCase(input="4", expected="x"),), checker=checker)


def asserted(code: str) -> Problem:
    checker = Checker(kind="asserts", code=code)
    return Problem(problem_id="p", statement="s", form="function", entry_point="f", tests=(), checker=checker)


def test_right_program_is_accepted_with_its_measures(judge: Judge, double: Problem) -> None:
    judgement = judge.submit(double, RIGHT, "a").result()
    assert (judgement.verdict, judgement.tests_passed, judgement.tests_total) == (Verdict.ACCEPTED, 2, 2)
    assert (judgement.problem_id, judgement.program_id, judgement.accepting_method) == ("double", "a", "exact")
    assert 0 < judgement.time_s < 1
    assert 1 < judgement.memory_mib < 200
    assert {"own_process", "rlimits", "no_new_privs", "seccomp"} <= set(judgement.sandbox)


def test_first_failing_test_ends_the_run(judge: Judge, double: Problem) -> None:
    judgement = judge.submit(double, "def double(x):\n    return 4\n").result()
    assert (judgement.verdict, judgement.tests_passed, judgement.detail) == (Verdict.WRONG_ANSWER, 1, "test 2: the answer differs")


def test_no_program_is_incomplete(judge: Judge, double: Problem) -> None:
    judgement = judge.submit(double, None).result()
    assert (judgement.verdict, judgement.outcome, judgement.tests_total) == (Verdict.NO_PROGRAM, Outcome.INCOMPLETE, 2)


def test_judgements_come_in_the_order_of_the_programs(judge: Judge, total: Problem) -> None:
    sleepers = [(total, f"import time; time.sleep({0.2 if number % 3 == 0 else 0})", str(number)) for number in range(12)]
    assert [each.program_id for each in judge.judge_many(sleepers)] == [str(number) for number in range(12)]


def test_look_ahead_is_bounded(double: Problem) -> None:
    taken = 0

    def items() -> Iterator[tuple[Problem, str, None]]:
        nonlocal taken
        for _ in range(1000):
            taken += 1
            yield double, RIGHT, None

    with Judge(JudgeConfig(workers=1)) as judge:
        next(judge.judge_many(items()))
    assert taken < 50


def test_tests_do_not_share_state(judge: Judge) -> None:
    tests = (TestCase(input=[], expected=1), TestCase(input=[], expected=1))
    problem = Problem(problem_id="p", statement="s", form="function", entry_point="f", tests=tests)
    assert judge.submit(problem, "seen = []\ndef f():\n    seen.append(1)\n    return len(seen)\n").result().verdict is Verdict.ACCEPTED


def test_arguments_arrive_with_their_types(judge: Judge) -> None:
    arguments = [{"$tuple": [1]}, {"$set": [1]}, {"$map": [[1, 2]]}, {"$float": "inf"}, {"$bytes": "YQ=="}, {"$complex": [0.0, 1.0]}]
    expected = ["tuple", "set", "dict", "float", "bytes", "complex"]
    problem = Problem(
        problem_id="p", statement="s", form="function", entry_point="f", tests=(TestCase(input=arguments, expected=expected),)
    )
    assert judge.submit(problem, "def f(*a):\n    return [type(x).__name__ for x in a]\n").result().verdict is Verdict.ACCEPTED


def test_program_checker_decides(judge: Judge) -> None:
    problem = checked("def check(input, expected, output):\n    return expected == 'x' and int(output) > int(input)\n")
    assert judge.submit(problem, "print(5)").result().accepting_method == "program"
    assert judge.submit(problem, "print(3)").result().verdict is Verdict.WRONG_ANSWER


@pytest.mark.parametrize(
    "code", ["def check(i, e, o):\n    raise ValueError", "def check(i): pass", "import os\ndef check(i, e, o): os._exit(0)"]
)
def test_checker_that_fails_is_our_fault(judge: Judge, code: str) -> None:
    judgement = judge.submit(checked(code), "print(5)").result()
    assert (judgement.verdict, judgement.outcome) == (Verdict.JUDGE_ERROR, Outcome.UNGRADED)


def test_asserts_see_exceptions_of_the_candidate(judge: Judge) -> None:
    problem = asserted(
        "def check(c):\n    try:\n        c('x')\n"
        "    except ValueError as e:\n        assert str(e) == 'bad x'\n    else:\n        assert False\n"
    )
    assert judge.submit(problem, "def f(x):\n    raise ValueError('bad ' + x)\n").result().verdict is Verdict.ACCEPTED
    assert judge.submit(problem, "def f(x):\n    return 1\n").result().detail == "asserts: AssertionError"
    assert judge.submit(problem, "def f(x):\n    raise KeyError(x)\n").result().verdict is Verdict.RUNTIME_ERROR


def test_asserts_share_one_candidate(judge: Judge) -> None:
    problem = asserted(
        "def check(c):\n    assert c(2, key=3) == (2, 3)\n    assert c(1) == (1, None)\n    assert c(0, key=int) == (0, 1)\n"
    )
    program = "def f(x, key=None):\n    return (x, 1 if key is int else key)\n"
    assert judge.submit(problem, program).result().verdict is Verdict.ACCEPTED


@pytest.mark.parametrize(
    ("program", "verdict"),
    [
        ("def f(x) return", Verdict.COMPILE_ERROR),
        ("def g(x): return x", Verdict.RUNTIME_ERROR),
        ("raise ValueError", Verdict.RUNTIME_ERROR),
        ("def f(x):\n    while True: pass", Verdict.TIME_LIMIT_EXCEEDED),
        ("def f(x):\n    return bytearray(3 << 30)", Verdict.MEMORY_LIMIT_EXCEEDED),
        ("def f(x):\n    return 'x' * (20 << 20)", Verdict.OUTPUT_LIMIT_EXCEEDED),
        ("def f(x):\n    return lambda: 1", Verdict.RUNTIME_ERROR),
        ("def f(x):\n    return 1", Verdict.WRONG_ANSWER),
        ("def f(x):\n    return 2", Verdict.ACCEPTED),
    ],
)
def test_asserts_tell_failures_apart(judge: Judge, program: str, verdict: Verdict) -> None:
    problem = asserted("def check(c):\n    assert c(1) == 2\n").model_copy(update={"time_limit_s": 0.5})
    assert judge.submit(problem, program).result().verdict is verdict


def test_asserts_that_pass_what_cannot_be_carried_are_our_fault(judge: Judge) -> None:
    assert judge.submit(asserted("def check(c):\n    c(lambda: 1)\n"), "def f(x): pass").result().verdict is Verdict.JUDGE_ERROR


@pytest.mark.parametrize("trouble", ["del check", "raise OSError", "import nowhere", "import os; os._exit(0)"])
def test_asserts_that_cannot_be_loaded_are_our_fault(judge: Judge, trouble: str) -> None:
    judgement = judge.submit(asserted(f"def check(candidate): pass\n{trouble}\n"), "def f(x): return x").result()
    assert (judgement.verdict, judgement.outcome) == (Verdict.JUDGE_ERROR, Outcome.UNGRADED)


def test_lost_worker_is_replaced(double: Problem) -> None:
    with Judge(JudgeConfig(workers=1)) as judge:
        assert judge.submit(double, RIGHT).result().verdict is Verdict.ACCEPTED
        lost = judge._started[0].for_programs()._process
        os.killpg(lost.pid, signal.SIGKILL)
        lost.wait()
        assert judge.submit(double, RIGHT).result().verdict is Verdict.ACCEPTED


def test_worker_that_cannot_start_is_a_judge_error(double: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    with Judge(JudgeConfig(workers=1)) as judge:
        judge._started[0].close()
        monkeypatch.setattr(sys, "executable", "/bin/false")
        judgement = judge.submit(double, RIGHT).result()
    assert (judgement.verdict, judgement.outcome) == (Verdict.JUDGE_ERROR, Outcome.UNGRADED)


def test_sandbox_below_the_minimum_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "MINIMUM", (*process_module.MINIMUM, "moat"))
    with pytest.raises(JudgeError, match="moat does not hold"), Judge(JudgeConfig(workers=1)):
        pass


def test_judge_that_was_not_entered_runs_nothing(double: Problem) -> None:
    with pytest.raises(JudgeError, match="context manager"):
        Judge(JudgeConfig(workers=1)).submit(double, RIGHT)


def test_no_sandbox_is_said_in_every_result(double: Problem) -> None:
    with Judge(JudgeConfig(workers=1, sandbox="none")) as judge:
        assert judge.submit(double, RIGHT).result().sandbox == ("none", "rlimits")


def test_leaving_on_an_error_does_not_wait_for_programs(total: Problem) -> None:
    judge = Judge(JudgeConfig(workers=1, time_limit_s=30)).__enter__()
    running, waiting = (judge.submit(total, f"import time; time.sleep(6{number})") for number in range(2))
    time.sleep(0.3)
    started = time.monotonic()
    judge.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert time.monotonic() - started < 3
    assert running.result().verdict is Verdict.JUDGE_ERROR
    assert waiting.cancelled()


@pytest.mark.parametrize("level", ["no_mounts", "bare"])
def test_weaker_levels_of_isolation_work_too(level: str, total: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zygotes_module, "LEVELS", (level,))
    with Judge(JudgeConfig(workers=1)) as judge:
        assert judge.submit(total, "input()\nprint(sum(map(int, input().split())))").result().verdict is Verdict.ACCEPTED
        assert judge.submit(total, "open('x', 'w').write('1')\nopen('../y', 'w')").result().detail.startswith("test 2: PermissionError")


@pytest.mark.parametrize("program", ["\ud800", "raise ValueError('\\ud800\\x00\\x1b')", "raise type('A\\n\\x1b', (Exception,), {})"])
def test_detail_is_one_printable_line(judge: Judge, total: Problem, program: str) -> None:
    detail = judge.submit(total, program).result().detail
    assert detail.encode().decode().isprintable()


def test_scratch_of_a_killed_judge_is_removed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    here, dead = process_module._pid_namespace(), pid_of_an_ended_process()
    of_a_living, of_another_container = f"microcoder-judge-{here}-{os.getppid()}-abc", f"microcoder-judge-1-{dead}-abc"
    for name in (of_a_living, of_another_container, f"microcoder-judge-{here}-{dead}-abc"):
        (tmp_path / name).mkdir()
    with Judge(JudgeConfig(workers=1)):
        pass
    assert {path.name for path in tmp_path.iterdir()} == {of_a_living, of_another_container}


def test_a_child_that_cannot_be_confined_is_no_failure_of_the_program(
    double: Problem, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Judge(JudgeConfig(workers=1, sandbox="minimum")) as judge:
        (scratch,) = tmp_path.iterdir()
        scratch.rmdir()
        assert judge.submit(double, RIGHT).result().verdict is Verdict.ACCEPTED  # by a new worker


def test_root_in_name_alone_can_judge(double: Problem) -> None:
    """As in a pod that runs as user 0 and drops all capabilities."""
    script = (
        "from microcoder_core.judge.judge import Judge, JudgeConfig\nfrom microcoder_core.records import Problem\nimport os, sys\n"
        "problem = Problem.model_validate_json(sys.argv[1])\n"
        'peek = f\'open("/proc/{os.getpid()}/mem", "r+b")\\ndef double(x): return 1\'\n'
        "with Judge(JudgeConfig(workers=1, sandbox='minimum')) as judge:\n"
        "    print(judge.submit(problem, sys.argv[2]).result().verdict, judge.submit(problem, peek).result().detail)\n"
    )
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv, to drop capabilities")
    drop = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
    command = [*drop, sys.executable, "-c", script, double.model_dump_json(), RIGHT]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert said.stdout.startswith("accepted test 1: PermissionError"), said.stderr


def test_killed_grader_leaves_no_process(tmp_path: Path) -> None:
    script = tmp_path / "grader.py"
    script.write_text(
        "from microcoder_core.judge.judge import Judge, JudgeConfig\n"
        "from microcoder_core.records import Problem, TestCase\n"
        "problem = Problem(problem_id='p', statement='s', form='stdin', tests=(TestCase(input='', expected=''),), time_limit_s=20)\n"
        "with Judge(JudgeConfig(workers=1)) as judge:\n"
        "    running = judge.submit(problem, 'import time; time.sleep(60)')\n"
        "    print(judge._started[0].for_programs()._process.pid, flush=True)\n"
        "    running.result()\n"
    )
    grader = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert grader.stdout is not None
    zygote = int(grader.stdout.readline())
    time.sleep(0.3)
    tree = _descendants(zygote)
    assert len(tree) >= 2  # the zygote and the child that sleeps
    grader.kill()
    grader.wait()
    grader.stdout.close()
    deadline = time.monotonic() + 5
    while any(map(_is_alive, tree)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [pid for pid in tree if _is_alive(pid)] == []


def _descendants(pid: int) -> list[int]:
    """`pid` and all that came of it."""
    children = [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]
    return [pid, *(below for child in children for below in _descendants(child))]


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


NAMES = [
    "return Counter(x).most_common(1)[0][0]",
    "return eval('Counter')(x).most_common(1)[0][0]",
    "import builtins\n    return vars(builtins)['Counter'](x).most_common(1)[0][0]",
    "import typing\n    def g(y: 'List[int]'): return y[0]\n    return g(x) if typing.get_type_hints(g) else 0",
    "import timeit\n    return 3 if timeit.timeit('heapq.heapify([1])', number=1) else 0",
]


@pytest.mark.parametrize("body", NAMES)
def test_common_names_are_there_for_functions(judge: Judge, body: str) -> None:
    program = f"def f(x: List[int]) -> Optional[int]:\n    {body}\n"
    problem = Problem(problem_id="p", statement="s", form="function", entry_point="f", tests=(TestCase(input=[[3, 3, 1]], expected=3),))
    assert judge.submit(problem, program).result().verdict is Verdict.ACCEPTED


def test_common_names_do_not_take_the_place_of_the_program_s_own(judge: Judge) -> None:
    program = "import builtins\nbuiltins.Counter = lambda x: 7\ndef f(x): return Counter(x)\n"
    problem = Problem(problem_id="p", statement="s", form="function", entry_point="f", tests=(TestCase(input=[1], expected=7),))
    assert judge.submit(problem, program).result().verdict is Verdict.ACCEPTED


def test_a_worker_that_cannot_start_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "no more processes")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(subprocess, "Popen", refuse)
    before = os.listdir("/proc/self/fd"), groups_of_this_process()
    for _ in range(3):
        with pytest.raises(BlockingIOError):
            ZygoteProcess(JudgeConfig())
    assert (os.listdir("/proc/self/fd"), groups_of_this_process(), os.listdir(tmp_path)) == (*before, [])


def test_files_of_a_program_are_closed_where_one_of_them_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def make(name: str, flags: int) -> int:
        if len(made) == 3:
            raise OSError(24, "too many open files")
        made.append(os.open("/dev/null", os.O_RDWR))
        return made[-1]

    monkeypatch.setattr(os, "memfd_create", make)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError, match="too many"):
        RunFiles(b"")
    assert os.listdir("/proc/self/fd") == before
