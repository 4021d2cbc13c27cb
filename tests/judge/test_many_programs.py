"""Thousands of programs stream through the judge without its memory growing."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from microcoder_core.judge.judge import Item, Judge, JudgeConfig
from microcoder_core.records import Problem, TestCase, Verdict
from tests.processes import workers_of

PROGRAMS, WARM = 10_000, 2_000
GROWTH_MIB = 24


@pytest.mark.slow
def test_memory_is_flat_over_ten_thousand_programs() -> None:
    drawn = 0

    def items() -> Iterator[Item]:
        nonlocal drawn
        for drawn in range(PROGRAMS):
            if drawn % 500 == 0:  # problems come and go too
                tests = tuple(TestCase(input=f"{drawn} {n} {'x' * 10_000}", expected=str(drawn)) for n in range(2))
                problem = Problem(problem_id=str(drawn), statement="s", form="stdin", tests=tests)
            yield problem, f"print(input().split()[0])\nfiller = {str(drawn) * 500!r}", None

    with Judge(JudgeConfig()) as judge:
        before = 0.0
        for number, judgement in enumerate(judge.judge_many(items())):
            assert judgement.verdict is Verdict.ACCEPTED, judgement.detail
            assert drawn - number <= 8 * judge.config.num_workers
            if number == WARM:
                before = held_mib()
        assert number == PROGRAMS - 1
        assert held_mib() < before + GROWTH_MIB


def held_mib() -> float:
    """Resident memory of this process and of its workers, in MiB."""
    return sum(rss_mib(pid) for pid in (os.getpid(), *workers_of(os.getpid())))


def rss_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:")), 0.0)
