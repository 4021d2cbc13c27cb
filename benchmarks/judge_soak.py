"""A soak of the judge service: thousands of good, wrong and hostile programs through it at once, every answer checked.

    python benchmarks/judge_soak.py --programs 20000 --out benchmarks/judge_soak.json

Starts `microcoder judge serve`, sends the programs through several clients, and looks at the service's processes, descriptors and memory on
the way. The last line printed is a JSON object; exit code 1 where an answer is missing, doubled or wrong, or where something grows.
"""

from __future__ import annotations

import json
import platform
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click
import httpx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from microcoder_core.judge.client import JudgeClient
from microcoder_core.judge.config import JudgeConfig
from microcoder_core.records import Checker, Judgement, Problem, TestCase
from tests.processes import workers_of

CLIENTS = 4
IN_FLIGHT = 2048
WARM_UP = 0.2
"""Share of the programs after which nothing may grow any more."""
GROWTH_MIB = 48
SERVE = [sys.executable, "-c", "from microcoder_core.cli.main import main; main()", "judge", "serve", "--port", "0"]

STDIN = Problem(
    problem_id="sum",
    statement="Print the sum.",
    form="stdin",
    tests=tuple(TestCase(input=f"{n} {n}\n", expected=f"{2 * n}\n") for n in range(3)),
    checker=Checker(kind="tokens"),
    time_limit_s=0.5,
    memory_limit_mib=128,
)
FUNCTION = Problem(
    problem_id="f",
    statement="Twice.",
    form="function",
    entry_point="f",
    tests=tuple(TestCase(input=[n], expected=2 * n) for n in range(3)),
    checker=Checker(kind="exact"),
    time_limit_s=0.5,
    memory_limit_mib=128,
)
FAILED = {"wrong_answer", "runtime_error"}


class Kind(NamedTuple):
    """A kind of program with the verdicts that are right for it."""

    name: str
    weight: int
    problem: Problem
    program: str
    verdicts: set[str]


KINDS = (
    Kind("right, stdin", 300, STDIN, "print(sum(map(int, input().split())))", {"accepted"}),
    Kind("right, function", 300, FUNCTION, "def f(x):\n    return 2 * x", {"accepted"}),
    Kind("wrong, stdin", 100, STDIN, "print(7)", {"wrong_answer"}),
    Kind("wrong, function", 100, FUNCTION, "def f(x):\n    return x + 1", {"wrong_answer"}),
    Kind("raises", 50, FUNCTION, "def f(x):\n    return [][x]", {"runtime_error"}),
    Kind("does not compile", 30, FUNCTION, "def f(x) return", {"compile_error"}),
    Kind("leaves with success", 30, FUNCTION, "import os\nos._exit(0)", {"runtime_error"}),
    Kind(
        "forged frame",
        20,
        FUNCTION,
        "import os\nfor fd in range(3, 9):\n    try: os.write(fd, b'\\0\\0\\0\\x0b{\"value\":2}')\n    except OSError: pass\nos._exit(0)",
        FAILED,
    ),
    Kind("forks", 20, STDIN, "import os\nwhile True: os.fork()", {"runtime_error"}),
    Kind("kills", 20, STDIN, "import os\nos.kill(os.getppid(), 9)", {"runtime_error"}),
    Kind("connects", 20, STDIN, "import socket\nsocket.create_connection(('169.254.169.254', 80))", {"runtime_error"}),
    Kind(
        "leaves files",
        20,
        STDIN,
        "import os\nos.makedirs('a/b/c')\nopen('a/b/c/left-behind', 'w').write('x')\nprint(os.listdir('.'))",
        {"wrong_answer"},
    ),
    Kind(
        "fills the folder",
        4,
        STDIN,
        "for n in range(200): open(str(n), 'wb').write(bytes(1 << 20))",
        {"runtime_error", "memory_limit_exceeded"},
    ),
    Kind("too much memory", 8, STDIN, "held = bytearray(1 << 30)", {"memory_limit_exceeded"}),
    Kind("touched memory", 4, STDIN, "held = [bytearray(1 << 20) for _ in range(400)]", {"memory_limit_exceeded"}),
    Kind("output without end", 4, STDIN, "while True: print('x' * 65536)", {"output_limit_exceeded", "time_limit_exceeded"}),
    Kind("recursion", 10, STDIN, "def f(): f()\nf()", {"runtime_error"}),
    Kind(
        "threads",
        4,
        STDIN,
        "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(9,), daemon=True).start()",
        {"runtime_error", "memory_limit_exceeded", "time_limit_exceeded"},
    ),
    Kind("no end", 4, FUNCTION, "def f(x):\n    while True: pass", {"time_limit_exceeded"}),
    Kind("sleeps", 1, FUNCTION, "import time\ndef f(x):\n    time.sleep(60)", {"time_limit_exceeded"}),
    Kind("no program", 20, STDIN, "", {"wrong_answer"}),
)


class Reading(NamedTuple):
    """The service at one moment."""

    answered: int
    rss_mib: float
    descriptors: int
    processes: int
    """Worker processes with what they forked."""


def programs(total: int, seed: int) -> Iterator[tuple[Kind, str]]:
    """Programs of all kinds, each of which differs from every other one, so that no verdict is remembered."""
    drawn = random.Random(seed).choices(KINDS, [kind.weight for kind in KINDS], k=total)
    for number, kind in enumerate(drawn):
        yield kind, f"{kind.program}\n# {number}"


def read(service: subprocess.Popen[str], answered: int) -> Reading:
    """What the service holds: resident memory of itself and its workers, descriptors of itself."""
    workers = workers_of(service.pid)
    pids = [service.pid, *workers]
    return Reading(answered, round(sum(map(_rss_mib, pids)), 1), len(list(Path(f"/proc/{service.pid}/fd").iterdir())), len(workers))


def _rss_mib(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:")), 0.0)


class Book:
    """What came back."""

    def __init__(self) -> None:
        self.answers: Counter[int] = Counter()
        self.verdicts: Counter[str] = Counter()
        self.wrong: list[str] = []

    def take(self, number: int, kind: Kind, done: Future[Judgement]) -> None:
        """Notes one answer."""
        judgement = done.result()
        self.answers[number] += 1
        self.verdicts[judgement.verdict.value] += 1
        if judgement.verdict.value not in kind.verdicts or judgement.program_id != str(number):
            self.wrong.append(f"{kind.name} ({number}): {judgement.verdict.value} {judgement.detail}")


def soak(service: subprocess.Popen[str], url: str, total: int, seed: int) -> tuple[Book, list[Reading], float]:
    """Sends all programs, as many at a time as the service takes on."""
    book, readings = Book(), [read(service, 0)]
    started = time.monotonic()
    with ExitStack() as stack:
        clients = [stack.enter_context(JudgeClient(JudgeConfig(url=url))) for _ in range(CLIENTS)]
        for number, (kind, program) in enumerate(programs(total, seed)):
            while number - book.answers.total() >= IN_FLIGHT:
                time.sleep(0.01)
            if number % max(1, total // 20) == 0 and number:
                readings.append(read(service, book.answers.total()))
            verdict = clients[number % CLIENTS].submit(kind.problem, program, str(number))
            verdict.add_done_callback(partial(book.take, number, kind))
    seconds = time.monotonic() - started
    time.sleep(1)
    return book, [*readings, read(service, book.answers.total())], seconds


def findings(book: Book, readings: list[Reading], total: int) -> list[str]:
    """What is wrong."""
    warm = [one for one in readings if one.answered >= WARM_UP * total]
    found = list(book.wrong[:20])
    if missing := total - len(book.answers):
        found.append(f"{missing} programs have no answer")
    if doubled := sum(count > 1 for count in book.answers.values()):
        found.append(f"{doubled} programs have more than one answer")
    if readings[-1].rss_mib > warm[0].rss_mib + GROWTH_MIB:
        found.append(f"memory grew from {warm[0].rss_mib} to {readings[-1].rss_mib} MiB")
    if readings[-1].descriptors > readings[0].descriptors + 8:
        found.append(f"descriptors grew from {readings[0].descriptors} to {readings[-1].descriptors}")
    return found


@click.command()
@click.option("--programs", "total", type=int, default=20_000, show_default=True)
@click.option("--seed", type=int, default=0)
@click.option("--out", type=click.Path(path_type=Path))
def main(total: int, seed: int, out: Path | None) -> None:
    """Soaks the service; the last line is the result as JSON."""
    service = subprocess.Popen(SERVE, stdout=subprocess.PIPE, text=True)
    assert service.stdout is not None
    try:
        url = service.stdout.readline().split()[2]
        info: dict[str, Any] = httpx.get(f"{url}/v1/info").json()
        book, readings, seconds = soak(service, url, total, seed)
    finally:
        service.terminate()
        exit_code = service.wait(timeout=60)
    wrong = findings(book, readings, total)
    if left := workers_of(service.pid):
        wrong.append(f"{len(left)} processes are left")
    if exit_code:
        wrong.append(f"the service ended with {exit_code}")
    result = {
        "programs": total,
        "seconds": round(seconds, 1),
        "programs_per_s": round(total / seconds, 1),
        "answered_once": sum(count == 1 for count in book.answers.values()),
        "wrong": len(book.wrong),
        "verdicts": dict(book.verdicts.most_common()),
        "workers": info["workers"],
        "in_flight": min(IN_FLIGHT, info["max_programs"]),
        "findings": wrong,
    }
    if out:
        environment = {"machine": platform.machine(), "python": platform.python_version(), "layers": info["layers"]}
        whole = {**result, "readings": [one._asdict() for one in readings], "environment": environment}
        out.write_text(json.dumps(whole, indent=1) + "\n")
    click.echo(json.dumps(result))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
