"""Tasks as processes: shown, logged, stopped. Real processes and real signals."""

import io
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from kfp.local import graph_utils, subprocess_task_handler

from microcoder_core.interrupt import sigterm_raises, stop_exit_code
from pipelines import stage_process
from pipelines.stage_process import Screen, Stages, own_processes, with_interpreter

SLOW = """
import signal, sys, time
def stop(number, frame):
    print("saved", file=sys.stderr)
    sys.exit(3)
signal.signal(signal.SIGTERM, stop)
print("ready", file=sys.stderr, flush=True)
time.sleep(60)
"""
STUBBORN = SLOW.replace("sys.exit(3)", "pass").replace("time.sleep(60)", "[time.sleep(1) for _ in range(60)]")


def shell(code: str) -> list[str]:
    """The command of a task as KFP makes it: a shell with Python below it."""
    return [
        "sh",
        "-ec",
        f'x=1\n{sys.executable} -c "$0" "$@"\n',
        code,
        "--executor_input",
        '{"outputFile": "/a/train/executor_output.json"}',
    ]


@pytest.fixture
def stages(tmp_path: Path) -> Stages:
    return Stages({"train": "train it"}, tmp_path / "logs")


def interrupt_when(ready: Path, number: signal.Signals, times: int = 1) -> threading.Thread:
    def wait_and_send() -> None:
        while not (ready.is_file() and "ready" in ready.read_text()):
            time.sleep(0.02)
        for _ in range(times):
            os.kill(os.getpid(), number)
            time.sleep(0.3)

    thread = threading.Thread(target=wait_and_send)
    thread.start()
    return thread


def test_stderr_is_shown_and_stdout_is_kept(stages: Stages, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code = "import sys; print('KFP'); sys.stdout.flush(); print('ours', file=sys.stderr); sys.exit(7)"
    assert stages.run(shell(code), {}) == stages.exit_code == 7
    assert capfd.readouterr().err == "[1/1] train it\nours\n"
    assert (tmp_path / "logs" / "train.log").read_text() == "KFP\nours\n"
    assert stages.last_line == "ours"


def test_environment_is_added_to_ours(stages: Stages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OURS", "1")
    assert stages.run(shell("import os, sys; sys.exit(int(os.environ['OURS'] + os.environ['MORE']))"), {"MORE": "2"}) == 12


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 3), (signal.SIGTERM, 143)])
def test_a_stop_lets_the_task_save_first(
    stages: Stages, tmp_path: Path, number: signal.Signals, code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    sender = interrupt_when(tmp_path / "logs" / "train.log", number)
    with sigterm_raises(), pytest.raises(KeyboardInterrupt) as stopped:
        stages.run(shell(SLOW), {})
    sender.join()
    assert stop_exit_code(stopped.value) == code
    assert capfd.readouterr().err.splitlines()[-2:] == ["stopping train it (once more: at once)", "saved"]


def test_a_second_stop_kills(stages: Stages, tmp_path: Path) -> None:
    started = time.monotonic()
    sender = interrupt_when(tmp_path / "logs" / "train.log", signal.SIGINT, times=2)
    with sigterm_raises(), pytest.raises(KeyboardInterrupt):
        stages.run(shell(STUBBORN), {})
    sender.join()
    assert time.monotonic() - started < 20


@pytest.mark.skipif(not Path("/proc/self/stat").is_file(), reason="looks into /proc")
def test_a_task_that_does_not_stop_is_killed(stages: Stages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_process, "GRACE_S", 0.5)
    sender = interrupt_when(tmp_path / "logs" / "train.log", signal.SIGINT)
    with sigterm_raises(), pytest.raises(KeyboardInterrupt):
        stages.run(shell(f"import os; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n{STUBBORN}"), {})
    sender.join()
    assert ended(int((tmp_path / "pid").read_text()))


def ended(pid: int) -> bool:
    """Whether a process is gone, or waits for its new parent to take note of its end."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def test_only_the_script_gets_this_interpreter() -> None:
    command = ["sh", "-ec", "python3 -m kfp.dsl.executor_main $@", "code python3", "/home/python3/executor_main"]
    assert with_interpreter(command) == [*command[:2], f'"{sys.executable}" -m kfp.dsl.executor_main $@', *command[3:]]


def test_tasks_run_in_the_order_of_their_titles(tmp_path: Path) -> None:
    tasks = {name: Task([]) for name in ("c", "b", "a")} | {"d": Task(["b"]), "first": Task(["d"])}
    with own_processes(Stages(dict.fromkeys(("first", "a", "b", "c", "d")), tmp_path)):
        stack = graph_utils.topological_sort_tasks(tasks)
    assert stack[::-1] == ["b", "d", "first", "a", "c"]


def test_kfp_has_its_own_way_back_afterwards(stages: Stages) -> None:
    theirs = subprocess_task_handler.SubprocessTaskHandler
    with own_processes(stages):
        assert issubclass(subprocess_task_handler.SubprocessTaskHandler, theirs)
        assert subprocess_task_handler.SubprocessTaskHandler is not theirs
    assert subprocess_task_handler.SubprocessTaskHandler is theirs


class Task(NamedTuple):
    dependent_tasks: list[str]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


LINES = ("start", "train [##--] 2/4 0:01 left", "train [####] 4/4 done", "end")


def test_progress_is_written_over_on_a_terminal() -> None:
    screen = Screen(terminal := Terminal())
    for line in LINES:
        screen.line(line)
    assert terminal.getvalue() == f"start\n{LINES[1]}\r\x1b[K{LINES[2]}\nend\n"


def test_progress_is_one_line_each_elsewhere() -> None:
    screen = Screen(stream := io.StringIO())
    for line in LINES:
        screen.line(line)
    assert stream.getvalue() == "\n".join(LINES) + "\n"
