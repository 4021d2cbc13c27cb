"""The judge against others: how many programs a second, and how many verdicts are wrong.

Every contender judges the same programs in the same run, on one core, in turn; ratios are of their programs per second.

    make bench-judge DATA=../shared
    python benchmarks/judge_bench.py --data ../shared --out benchmarks/judge_bench.json

The folder holds `data/humaneval`, `data/humanevalpack_python` and `cases/judge.jsonl`. The last line printed is a JSON object.
"""

from __future__ import annotations

import gzip
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import judge_peers
from microcoder_core.data.importers.humaneval import import_humaneval
from microcoder_core.judge.judge import Judge, JudgeConfig
from microcoder_core.records import Problem, Verdict
from tests.judge.test_cases import problem_of

ROUNDS = 3
SETTINGS: dict[str, Any] = {"workers": 1, "time_limit_s": judge_peers.TIME_LIMIT_S, "remembered_verdicts": 0}


class Item(NamedTuple):
    """A program with its problem, and whether it is right."""

    problem: Problem
    program: str
    is_right: bool


def humaneval_pack(data: Path) -> list[Item]:
    """HumanEvalPack's right and wrong version of each problem of HumanEval whose tests are plain JSON."""
    problems = [one for one in import_humaneval(str(data / "data/humaneval/HumanEval.jsonl.gz")) if isinstance(one, Problem)]
    with gzip.open(data / "data/humanevalpack_python/humanevalpack_python.jsonl.gz", "rt") as stream:
        rows = [json.loads(line) for line in stream]
    items = []
    for problem, row in zip(problems, rows, strict=True):
        if problem.checker.kind != "asserts" and judge_peers.is_plain_json(problem):
            for part in ("canonical_solution", "buggy_solution"):
                items.append(Item(problem, row["prompt"] + row[part], part == "canonical_solution"))
    return items


def cases(data: Path) -> list[Item]:
    """The public cases of evaluators that were wrong, without the hostile ones, which a peer without a sandbox would carry out."""
    rows = [json.loads(line) for line in (data / "cases/judge.jsonl").read_text().splitlines()]
    return [Item(problem_of(row), row["code"], row["right_verdict"] == "pass") for row in rows if not row.get("danger")]


class Ours:
    """The judge in this process, with one worker."""

    def __init__(self, **settings: Any) -> None:
        self._judge = Judge(JudgeConfig(**(SETTINGS | settings)))

    def __enter__(self) -> Judge:
        return self._judge.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._judge.__exit__(*error)


class Run(NamedTuple):
    """One pass of a contender over some items."""

    seconds: float
    accepted: list[bool]
    tests: int = 0
    """Tests run, where the contender tells."""


def run_ours(items: Sequence[Item], **settings: Any) -> Run:
    """The judge over all items."""
    with Ours(**settings) as judge:
        started = time.perf_counter()
        judgements = list(judge.judge_many((item.problem, item.program, None) for item in items))
        seconds = time.perf_counter() - started
    accepted = [one.verdict is Verdict.ACCEPTED for one in judgements]
    return Run(seconds, accepted, sum(one.tests_passed for one in judgements) + accepted.count(False))


def run_peer(accepts: judge_peers.Accepts, items: Sequence[Item]) -> Run:
    """A peer over all items."""
    started = time.perf_counter()
    accepted = [accepts(item.problem, item.program) for item in items]
    return Run(time.perf_counter() - started, accepted)


def speed(items: Sequence[Item]) -> tuple[dict[str, Any], dict[str, dict[str, int]]]:
    """Ratios of programs per second, and what each contender got wrong.

    Right programs are judged in `ROUNDS` turns, of which the median counts; wrong ones once, since a peer waits up to 100 seconds for
    one that does not end.
    """
    right, wrong = [item for item in items if item.is_right], [item for item in items if not item.is_right]
    contenders = {
        "ours": run_ours,
        "verl prime_code": partial(run_peer, judge_peers.prime_code()),
        "fresh process": partial(run_peer, judge_peers.fresh_process()),
    }
    on_wrong = {name: contender(wrong) for name, contender in contenders.items()}
    on_right: dict[str, list[Run]] = {name: [] for name in contenders}
    for _ in range(ROUNDS):
        for name, contender in contenders.items():
            on_right[name].append(contender(right))
    seconds = {name: statistics.median(run.seconds for run in runs) for name, runs in on_right.items()}
    both = {name: seconds[name] + on_wrong[name].seconds for name in contenders}
    table = {name: _errors([*right, *wrong], [*on_right[name][0].accepted, *on_wrong[name].accepted]) for name in contenders}
    return {
        "programs": {"right": len(right), "wrong": len(wrong)},
        "tests_per_s_core": round(on_right["ours"][0].tests / seconds["ours"], 1),
        "ratio_prime_code": round(both["verl prime_code"] / both["ours"], 2),
        "ratio_prime_code_right": round(seconds["verl prime_code"] / seconds["ours"], 2),
        "ratio_subprocess": round(both["fresh process"] / both["ours"], 2),
        "ratio_subprocess_right": round(seconds["fresh process"] / seconds["ours"], 2),
        "seconds": {"right": {name: [round(run.seconds, 2) for run in runs] for name, runs in on_right.items()}}
        | {"wrong": {name: round(run.seconds, 2) for name, run in on_wrong.items()}},
    }, table


BUSY = "total = 0\nfor number in range(6_000_000):\n    total += number * number % 7\nprint(total)\n"


def cpu_overhead() -> float:
    """CPU seconds of a busy program in the judge over those in plain CPython, medians of `ROUNDS` in turns."""
    from microcoder_core.records import TestCase

    problem = Problem(problem_id="busy", statement="s", form="stdin", tests=(TestCase(input="", expected="12000001"),), time_limit_s=60)
    ours, plain = [], []
    with Ours() as judge, tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "busy.py"
        file.write_text(BUSY)
        for _ in range(ROUNDS):
            ours.append(judge.submit(problem, BUSY).result().time_s)
            before = os.times()
            os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-I", "-S", str(file)])
            after = os.times()
            plain.append(after.children_user + after.children_system - before.children_user - before.children_system)
    return statistics.median(ours) / statistics.median(plain)


def accuracy(items: Sequence[Item]) -> dict[str, dict[str, int]]:
    """What each chain and peer gets wrong."""
    table = {f"ours, {chain}": _errors(items, run_ours(items, chain=chain).accepted) for chain in ("guarded", "microcoder", "strict")}
    return table | {"verl prime_code": _errors(items, run_peer(judge_peers.prime_code(), items).accepted)}


def _errors(items: Sequence[Item], accepted: Sequence[bool]) -> dict[str, int]:
    pairs = list(zip(items, accepted, strict=True))
    return {
        "false_accepts": sum(said and not item.is_right for item, said in pairs),
        "false_rejects": sum(item.is_right and not said for item, said in pairs),
        "programs": len(pairs),
    }


@click.command()
@click.option("--data", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--out", type=click.Path(path_type=Path))
def main(data: Path, out: Path | None) -> None:
    """Measures speed and accuracy; the last line is the result as JSON."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # one core for all
    measured, on_pack = speed(humaneval_pack(data))
    tables = {"HumanEvalPack": on_pack, "public cases": accuracy(cases(data))}
    ours = [tables["HumanEvalPack"]["ours"], tables["public cases"]["ours, guarded"]]
    result = {
        **{key: value for key, value in measured.items() if key != "seconds"},
        "cpu_overhead": round(cpu_overhead(), 3),
        "false_accepts": sum(one["false_accepts"] for one in ours),
        "false_rejects": sum(one["false_rejects"] for one in ours),
    }
    if out:
        environment = {"machine": platform.machine(), "python": platform.python_version(), "peers": judge_peers.versions()}
        text = json.dumps({**result, "accuracy": tables, "seconds": measured["seconds"], "environment": environment}, indent=1)
        out.write_text(text + "\n")
    click.echo(json.dumps(result))


if __name__ == "__main__":
    main()
