"""Attacks that need more than one program to be judged (the rest are in `attacks`): on asserts, on checkers, on files that are there."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from microcoder_core.judge.judge import Judge, JudgeConfig
from microcoder_core.records import Checker, Judgement, Problem, TestCase, Verdict
from tests.judge.attacks import PEEK, SEND

pytestmark = pytest.mark.dangerous
Run = Callable[..., Judgement]
PEEKER = PEEK + "def f(x): return find()\n"


def test_expected_output_is_in_no_frame_and_no_object(run_function: Run) -> None:
    assert run_function(PEEKER, ["public-x"], "secret-abc").verdict is Verdict.WRONG_ANSWER
    assert run_function(PEEKER, ["secret-abc"], "secret-abc").verdict is Verdict.ACCEPTED  # so the search does find what is there


def test_asserts_do_not_enter_the_memory_of_the_program(judge: Judge) -> None:
    checker = Checker(kind="asserts", code="def check(candidate):\n    assert candidate('public-x') == 'secret-abc'\n")
    problem = Problem(problem_id="p", statement="s", form="function", entry_point="f", tests=(), checker=checker)
    assert {judge.submit(problem, f"{PEEKER}# {number}\n").result().verdict for number in range(4)} == {Verdict.WRONG_ANSWER}


def test_asserts_cannot_be_passed_by_leaving(judge: Judge) -> None:
    checker = Checker(kind="asserts", code="def check(candidate):\n    assert candidate(1) == 2\n")
    problem = Problem(problem_id="p", statement="s", form="function", entry_point="f", tests=(), checker=checker)
    assert judge.submit(problem, "import os\ndef f(x): os._exit(0)").result().verdict is Verdict.RUNTIME_ERROR


def test_asserts_cannot_be_passed_by_a_forged_verdict(judge: Judge) -> None:
    checker = Checker(kind="asserts", code="def check(candidate):\n    assert candidate(1) == 2\n")
    problem = Problem(problem_id="p", statement="s", form="function", entry_point="f", tests=(), checker=checker)
    program = SEND + "def f(x):\n    send(frame(b'{\"passed\": true}'))\n    return 1\n"
    assert judge.submit(problem, program).result().verdict is not Verdict.ACCEPTED


def test_program_cannot_patch_the_checker(judge: Judge) -> None:
    checker = Checker(kind="program", code="def check(input, expected, output):\n    return output == expected\n")
    problem = Problem(problem_id="p", statement="s", form="stdin", tests=(TestCase(input="", expected="7\n"),), checker=checker)
    program = "import builtins, json\nbuiltins.all = lambda *a: True\njson.loads = lambda *a: True\nprint(8)"
    assert judge.submit(problem, program).result().verdict is Verdict.WRONG_ANSWER


@pytest.mark.parametrize("attack", ["fork()", "vfork()", "kill(-1, 9)", "socket(2, 1, 0)", "ptrace(16, 1, 0, 0)", "unshare(0x10000000)"])
def test_forbidden_system_call_is_refused_below_python(run_stdin: Run, attack: str) -> None:
    assert run_stdin(f"import ctypes\nprint(ctypes.CDLL(None).{attack})", expected="-1").verdict is Verdict.ACCEPTED


def test_files_outside_scratch_stay_as_they_are(run_stdin: Run, tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("kept")
    tmp_path.chmod(0o777)
    program = f"import os, shutil\nshutil.rmtree({str(tmp_path)!r}, ignore_errors=True)\nopen({str(tmp_path / 'new')!r}, 'w')"
    assert run_stdin(program).verdict is Verdict.RUNTIME_ERROR
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_files_of_the_user_cannot_be_read(run_stdin: Run, tmp_path: Path) -> None:
    (tmp_path / "expected.txt").write_text("42")
    tmp_path.chmod(0o777)
    assert run_stdin(f"print(open({str(tmp_path / 'expected.txt')!r}).read())", expected="42").verdict is Verdict.RUNTIME_ERROR


def test_memory_of_the_grader_cannot_be_read(run_stdin: Run, minimum_judge: Judge) -> None:
    program = f"open('/proc/{os.getpid()}/mem', 'rb')"
    assert run_stdin(program).verdict is Verdict.RUNTIME_ERROR
    problem = Problem(problem_id="p", statement="s", form="stdin", tests=(TestCase(input="", expected=""),))
    assert minimum_judge.submit(problem, program).result().verdict is Verdict.RUNTIME_ERROR


@pytest.mark.parametrize(
    "attack",
    ["import os; os.fork()", "import socket; socket.socket()", "open('/usr/lib/x', 'w')", "import os; os.execv('/bin/true', ['true'])"],
)
def test_minimum_holds_without_landlock_and_namespaces(minimum_judge: Judge, attack: str) -> None:
    problem = Problem(problem_id="p", statement="s", form="stdin", tests=(TestCase(input="", expected=""),))
    assert minimum_judge.submit(problem, attack).result().verdict is Verdict.RUNTIME_ERROR


OTHER_USER = """
import sys
from microcoder_core.judge.judge import Judge, JudgeConfig
from microcoder_core.records import Problem, TestCase
problem = Problem(problem_id="p", statement="s", form="stdin", tests=(TestCase(input="", expected=""),))
with Judge(JudgeConfig(workers=1, sandbox="minimum")) as judge:
    print(judge.submit(problem, sys.argv[1]).result().detail)
"""


@pytest.mark.parametrize("whose", ["os.getppid()", "GRADER"])
def test_ordinary_user_at_the_minimum_has_its_memory_closed(whose: str) -> None:
    """Root holds capabilities that a child lacks, which closes its memory anyhow; an ordinary user holds none."""
    attack = "import os\nopen('/proc/%d/mem' % " + whose + ", 'r+b')"
    script = OTHER_USER.replace("sys.argv[1]", "sys.argv[1].replace('GRADER', str(__import__('os').getpid()))")
    as_user = ["unshare", "--user", "--map-user=1000"] if os.geteuid() == 0 else []
    if as_user and subprocess.run([*as_user, "true"], capture_output=True).returncode != 0:
        pytest.skip("root that may not make a user namespace, in which it would be an ordinary user")
    ran = subprocess.run([*as_user, sys.executable, "-c", script, attack], capture_output=True, text=True, timeout=60)
    assert "PermissionError" in ran.stdout, ran.stderr


def test_no_process_is_left_behind(tmp_path: Path) -> None:
    before = _own_descendants()
    with Judge(JudgeConfig(workers=2)) as judge:
        problem = Problem(problem_id="p", statement="s", form="stdin", tests=(TestCase(input="", expected=""),))
        list(judge.judge_many([(problem, "pass", None)] * 4))
    assert _own_descendants() == before


def _own_descendants() -> set[int]:
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = re.search(r"^PPid:\s+(\d+)", (folder / "status").read_text(), re.MULTILINE)
        except OSError:
            continue
        if parent and int(parent[1]) == os.getpid():
            found.add(int(folder.name))
    return found
