"""Programs that try to be accepted without solving, or to get out of the sandbox. One attack a test."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from microcoder_core.judge.judge import Judge, JudgeConfig
from microcoder_core.records import Checker, Judgement, Problem, TestCase, Verdict

pytestmark = pytest.mark.dangerous
Run = Callable[..., Judgement]


def test_leaving_at_once_is_no_answer(run_function: Run) -> None:
    assert run_function("import os\ndef f(x): os._exit(0)", [1], 7).verdict is Verdict.RUNTIME_ERROR


def test_leaving_at_import_is_no_answer(run_function: Run) -> None:
    assert run_function("import os\nos._exit(0)", [1], None).verdict is Verdict.RUNTIME_ERROR


FORGE = """
import os
def frame(text):
    return len(text).to_bytes(4, "big") + text
def send_everywhere(data):
    for fd in range(3, 128):
        try:
            os.write(fd, data)
        except OSError:
            pass
"""


@pytest.mark.parametrize("frame", ['{"verdict": "accepted"}', '{"passed": true}', '{"accepted": true, "value": 1}', "true", "[]", "{"])
def test_forged_frame_is_not_accepted(run_function: Run, frame: str) -> None:
    program = FORGE + f"def f(x):\n    send_everywhere(frame({frame.encode()!r}))\n    os._exit(0)\n"
    assert run_function(program, [1], 7).verdict in (Verdict.RUNTIME_ERROR, Verdict.WRONG_ANSWER)


def test_second_frame_spoils_the_first(run_function: Run) -> None:
    program = FORGE + "def f(x):\n    send_everywhere(frame(b'{\"value\": 7}'))\n    return 8\n"
    assert run_function(program, [1], 7).verdict is Verdict.RUNTIME_ERROR


def test_frame_that_announces_more_than_it_holds_is_refused(run_function: Run) -> None:
    program = FORGE + "def f(x):\n    send_everywhere(b'\\xff\\xff\\xff\\xff{}')\n    os._exit(0)\n"
    assert run_function(program, [1], 7).verdict is Verdict.RUNTIME_ERROR


def test_deeply_nested_forged_value_fails_the_program_only(run_function: Run) -> None:
    program = FORGE + "def f(x):\n    send_everywhere(frame(b'{\"value\": ' + b'[' * 200000 + b']' * 200000 + b'}'))\n    os._exit(0)\n"
    assert run_function(program, [1], 7).verdict in (Verdict.RUNTIME_ERROR, Verdict.WRONG_ANSWER)


def test_forged_integer_of_a_million_digits_does_not_stall_the_grader(run_function: Run) -> None:
    program = FORGE + "def f(x):\n    send_everywhere(frame(b'{\"value\": ' + b'9' * 10**6 + b'}'))\n    os._exit(0)\n"
    assert run_function(program, [1], 7).verdict is Verdict.WRONG_ANSWER


def test_object_equal_to_everything_is_wrong(run_function: Run) -> None:
    assert run_function("class J:\n    def __eq__(s, o): return True\ndef f(x): return J()", [1], 7).verdict is Verdict.WRONG_ANSWER


def test_subclass_cannot_pose_as_its_base(run_function: Run) -> None:
    program = (
        "class J(int):\n    def __eq__(s, o): return True\n    def __repr__(s): return '7'\n    __index__ = __repr__\ndef f(x): return J(8)"
    )
    assert run_function(program, [1], 7).verdict is Verdict.WRONG_ANSWER


PEEK = """
import gc, re, sys
def texts():
    frame = sys._getframe()
    while frame:
        yield repr(list(frame.f_locals.items()) + list(frame.f_globals.items()))
        frame = frame.f_back
    for thing in gc.get_objects():
        if isinstance(thing, (str, bytes, dict, list, tuple)):
            yield repr(thing)
def f(x):
    for text in texts():
        found = re.search("secret-[a-z]+", text)
        if found:
            return found[0]
"""


def test_expected_output_is_in_no_frame_and_no_object(run_function: Run) -> None:
    assert run_function(PEEK, ["public-x"], "secret-abc").verdict is Verdict.WRONG_ANSWER
    assert run_function(PEEK, ["secret-abc"], "secret-abc").verdict is Verdict.ACCEPTED  # so the search does find what is there


def test_process_files_are_closed(run_stdin: Run) -> None:
    assert "PermissionError" in run_stdin("open('/proc/self/mem', 'rb')").detail


def test_asserts_do_not_enter_the_memory_of_the_program(judge: Judge) -> None:
    checker = Checker(kind="asserts", code="def check(candidate):\n    assert candidate('public-x') == 'secret-abc'\n")
    problem = Problem(problem_id="p", statement="s", form="function", entry_point="f", tests=(), checker=checker)
    assert {judge.submit(problem, PEEK).result().verdict for _ in range(4)} == {Verdict.WRONG_ANSWER}


def test_asserts_cannot_be_passed_by_leaving(judge: Judge) -> None:
    checker = Checker(kind="asserts", code="def check(candidate):\n    assert candidate(1) == 2\n")
    problem = Problem(problem_id="p", statement="s", form="function", entry_point="f", tests=(), checker=checker)
    assert judge.submit(problem, "import os\ndef f(x): os._exit(0)").result().verdict is Verdict.RUNTIME_ERROR


def test_asserts_cannot_be_passed_by_a_forged_verdict(judge: Judge) -> None:
    checker = Checker(kind="asserts", code="def check(candidate):\n    assert candidate(1) == 2\n")
    problem = Problem(problem_id="p", statement="s", form="function", entry_point="f", tests=(), checker=checker)
    program = FORGE + "def f(x):\n    send_everywhere(frame(b'{\"passed\": true}'))\n    return 1\n"
    assert judge.submit(problem, program).result().verdict is not Verdict.ACCEPTED


def test_program_cannot_patch_the_checker(judge: Judge) -> None:
    checker = Checker(kind="program", code="def check(input, expected, output):\n    return output == expected\n")
    problem = Problem(problem_id="p", statement="s", form="stdin", tests=(TestCase(input="", expected="7\n"),), checker=checker)
    program = "import builtins, json\nbuiltins.all = lambda *a: True\njson.loads = lambda *a: True\nprint(8)"
    assert judge.submit(problem, program).result().verdict is Verdict.WRONG_ANSWER


@pytest.mark.parametrize(
    "attack",
    [
        "import socket; socket.socket()",
        "import socket; socket.socket(socket.AF_UNIX)",
        "import os; os.fork()",
        "import os; os.posix_spawn('/bin/true', ['true'], {})",
        "import os; os.execv('/proc/self/exe', ['python3', '-c', ''])",
        "import subprocess; subprocess.run(['true'])",
        "import os, signal; os.kill(-1, signal.SIGKILL)",
        "import os, signal; os.kill(os.getppid(), signal.SIGKILL)",
        "import os, signal; signal.pidfd_send_signal(os.pidfd_open(os.getppid()), 9)",
        "import os; os.memfd_create('x')",
        "import os, resource; resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (1, 1))",
        "import os; os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)",
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
        "import multiprocessing; multiprocessing.Process(target=print).start()",
        "open('/proc/1/environ', 'rb').read()",
        "open('/etc/passwd').read()",
        "import os; os.listdir('/root')",
        "import os; os.mknod('/dev/x')",
        "import os; os.mkfifo('/dev/pipe')",
        "import os; os.chroot('/')",
    ],
)
def test_forbidden_act_raises(run_stdin: Run, attack: str) -> None:
    judgement = run_stdin(attack)
    assert judgement.verdict is Verdict.RUNTIME_ERROR, judgement.detail


@pytest.mark.parametrize("attack", ["fork()", "vfork()", "kill(-1, 9)", "socket(2, 1, 0)", "ptrace(16, 1, 0, 0)", "unshare(0x10000000)"])
def test_forbidden_system_call_is_refused_below_python(run_stdin: Run, attack: str) -> None:
    assert run_stdin(f"import ctypes\nprint(ctypes.CDLL(None).{attack})", expected="-1").verdict is Verdict.ACCEPTED


def test_call_of_another_architecture_kills(run_stdin: Run) -> None:
    if os.uname().machine != "x86_64":
        pytest.skip("32-bit calls are x86's")
    program = (
        "import ctypes, mmap\n"
        "code = bytes.fromhex('b802000000cd80c3')\n"  # mov eax, 2 (fork); int 0x80; ret
        "page = mmap.mmap(-1, 4096, prot=7)\n"
        "page.write(code)\n"
        "ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()\n"
    )
    assert "signal" in run_stdin(program).detail


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


def test_scratch_is_empty_for_the_next_program(judge: Judge) -> None:
    problem = Problem(problem_id="p", statement="s", form="stdin", tests=(TestCase(input="", expected="0"),))
    hide = "import os\nos.makedirs('a/b/c')\nopen('a/b/c/x', 'w').write('7')\nos.symlink('/', 'root')\nos.chmod('a/b', 0)\nprint(0)"
    look = "import os\nprint(len(os.listdir('.')))"
    assert [each.verdict for each in judge.judge_many([(problem, hide, None), (problem, look, None)] * 4)] == [Verdict.ACCEPTED] * 8


def test_large_output_is_cut_and_refused(run_stdin: Run) -> None:
    assert run_stdin("print('7' * (17 << 20))", expected="7" * (17 << 20)).verdict is Verdict.OUTPUT_LIMIT_EXCEEDED


def test_large_file_cannot_fill_the_disk(run_stdin: Run) -> None:
    program = "with open('x', 'wb') as f:\n    for _ in range(200): f.write(bytes(1 << 20))"
    assert run_stdin(program).verdict is Verdict.RUNTIME_ERROR


def test_thread_that_lives_on_does_not_outlive_the_run(run_stdin: Run) -> None:
    program = "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\nprint(1)"
    assert run_stdin(program, expected="1").verdict is Verdict.ACCEPTED


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
