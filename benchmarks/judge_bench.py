"""The judge against others: how many verdicts are wrong, and how many programs a second.

Every contender judges the same programs in the same run, on one core, in turn; ratios are of their programs per second.

    make bench-judge DATA=../shared
    python benchmarks/judge_bench.py --data ../shared --out benchmarks/judge_bench.json

The folder holds `data/` and `cases/` as `judge_sets` says. The last line printed is a JSON object. With `--out`, the tables of the .md file
beside it are written anew.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import judge_peers, judge_sets
from benchmarks.judge_peers import Peer
from benchmarks.judge_sets import Item
from microcoder_core.data.verify import fitting_time_limit
from microcoder_core.judge.judge import Judge, JudgeConfig
from microcoder_core.records import Problem, TestCase, Verdict

ROUNDS = 3
CODEJAM_PROBLEMS = 60
"""Their inputs are long: a seeded sample is enough."""
SETTINGS: dict[str, Any] = {"workers": 1, "time_limit_s": judge_peers.TIME_LIMIT_S, "remembered_verdicts": 0}
CHAINS = ("guarded", "microcoder", "strict")
OURS = "ours"
MARKS = ("<!-- tables: written by judge_bench.py -->", "<!-- end of tables -->")


class Run(NamedTuple):
    """One pass of a contender over some items."""

    seconds: float
    accepted: list[bool]
    times_s: list[float]
    """CPU seconds of each program's slowest test, where the contender tells."""
    tests: int = 0
    """Tests run, where the contender tells."""


def run_ours(items: Sequence[Item], **settings: Any) -> Run:
    """The judge in this process, with one worker, over all items."""
    with Judge(JudgeConfig(**(SETTINGS | settings))) as judge:
        started = time.perf_counter()
        judgements = list(judge.judge_many((item.problem, item.program, None) for item in items))
        seconds = time.perf_counter() - started
    accepted = [one.verdict is Verdict.ACCEPTED for one in judgements]
    tests = sum(one.tests_passed for one in judgements) + accepted.count(False)
    return Run(seconds, accepted, [one.time_s for one in judgements], tests)


def run_peer(peer: Peer, items: Sequence[Item]) -> Run:
    """A peer over all items. A program on which it fails itself is not accepted."""
    started = time.perf_counter()
    accepted = [_accepts(peer, item) for item in items]
    return Run(time.perf_counter() - started, accepted, [])


def _accepts(peer: Peer, item: Item) -> bool:
    try:
        return peer.accepts(item.problem, item.program, item.reference_s)
    except Exception:
        return False


def timed(items: Sequence[Item]) -> list[Item]:
    """The items with what `curate` would find out: the time that the right programs need, and a limit that fits it."""
    right = [item for item in items if item.is_right]
    slowest: dict[str, float] = {}
    run = run_ours(right)
    for item, accepted, seconds in zip(right, run.accepted, run.times_s, strict=True):
        if accepted:
            name = item.problem.problem_id
            slowest[name] = max(slowest.get(name, 0.0), seconds)
    return [_with_time(item, slowest.get(item.problem.problem_id)) for item in items]


def _with_time(item: Item, seconds: float | None) -> Item:
    if seconds is None:
        return item
    limit = item.problem.time_limit_s or fitting_time_limit([seconds])
    return item._replace(problem=item.problem.model_copy(update={"time_limit_s": limit}), reference_s=seconds)


def speed(items: Sequence[Item], peers: dict[str, Peer]) -> tuple[dict[str, Any], dict[str, list[bool]]]:
    """Ratios of programs per second, and what each contender accepted of the right and then the wrong items.

    Right programs are judged in `ROUNDS` turns, of which the median counts; wrong ones once, since a peer waits up to 100 seconds for
    one that does not end.
    """
    right, wrong = [item for item in items if item.is_right], [item for item in items if not item.is_right]
    contenders: dict[str, Callable[[Sequence[Item]], Run]] = {OURS: run_ours}
    contenders |= {name: partial(run_peer, peer) for name, peer in peers.items()}
    on_wrong = {name: contender(wrong) for name, contender in contenders.items()}
    on_right: dict[str, list[Run]] = {name: [] for name in contenders}
    for _ in range(ROUNDS):
        for name, contender in contenders.items():
            on_right[name].append(contender(right))
    seconds = {name: statistics.median(run.seconds for run in runs) for name, runs in on_right.items()}
    both = {name: seconds[name] + on_wrong[name].seconds for name in contenders}
    ratios: dict[str, float] = {}
    for name in peers:
        key = {"verl prime_code": "prime_code", "fresh process": "subprocess"}.get(name, name.replace("-", "_"))
        ratios[f"ratio_{key}"] = round(both[name] / both[OURS], 2)
        ratios[f"ratio_{key}_right"] = round(seconds[name] / seconds[OURS], 2)
    measured = {
        "programs": {"right": len(right), "wrong": len(wrong)},
        "tests_per_s_core": round(on_right[OURS][0].tests / seconds[OURS], 1),
        **ratios,
        "seconds": {
            name: {"right": [round(run.seconds, 2) for run in on_right[name]], "wrong": round(on_wrong[name].seconds, 2)}
            for name in contenders
        },
    }
    return measured, {name: [*on_right[name][0].accepted, *on_wrong[name].accepted] for name in contenders}


BUSY = "total = 0\nfor number in range(6_000_000):\n    total += number * number % 7\nprint(total)\n"


def cpu_overhead() -> float:
    """CPU seconds of a busy program in the judge over those in plain CPython, medians of `ROUNDS` in turns."""
    problem = Problem(problem_id="busy", statement="s", form="stdin", tests=(TestCase(input="", expected="12000001"),), time_limit_s=60)
    ours, plain = [], []
    with Judge(JudgeConfig(**SETTINGS)) as judge, tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "busy.py"
        file.write_text(BUSY)
        for _ in range(ROUNDS):
            ours.append(judge.submit(problem, BUSY).result().time_s)
            before = os.times()
            os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-I", "-S", str(file)])
            after = os.times()
            plain.append(after.children_user + after.children_system - before.children_user - before.children_system)
    return statistics.median(ours) / statistics.median(plain)


Errors = dict[str, int]


def accuracy(items: Sequence[Item], peers: dict[str, Peer]) -> dict[str, Errors]:
    """What each chain and each peer gets wrong of what it can be given; a peer that can be given nothing is left out."""
    table = {f"{OURS}, {chain}": errors(items, run_ours(items, chain=chain).accepted) for chain in CHAINS}
    for name, peer in peers.items():
        given = [item for item in items if peer.takes(item.problem)]
        if given:
            table[name] = errors(given, run_peer(peer, given).accepted)
    return table


def errors(items: Sequence[Item], accepted: Sequence[bool]) -> Errors:
    """Wrong programs accepted, and right ones refused."""
    pairs = list(zip(items, accepted, strict=True))
    return {
        "false_accepts": sum(said and not item.is_right for item, said in pairs),
        "false_rejects": sum(item.is_right and not said for item, said in pairs),
        "programs": len(pairs),
    }


def tables(result: dict[str, Any]) -> str:
    """The result as Markdown."""
    lines = ["| programs | contender | number | wrong ones accepted | right ones refused |", "|---|---|---|---|---|"]
    for name, rows in result["accuracy"].items():
        for contender, row in rows.items():
            lines.append(f"| {name} | {contender} | {row['programs']} | {row['false_accepts']} | {row['false_rejects']} |")
    lines += [
        "",
        "| | right programs, seconds (three turns) | wrong programs, seconds | ours to it, right | ours to it, together |",
        "|---|---|---|---|---|",
    ]
    for name, seconds in result["seconds"].items():
        key = {"verl prime_code": "prime_code", "fresh process": "subprocess"}.get(name, name.replace("-", "_"))
        ratios = [f"{result[f'ratio_{key}{part}']:g}" if name != OURS else "1" for part in ("_right", "")]
        lines.append(f"| {name} | {', '.join(f'{one:g}' for one in seconds['right'])} | {seconds['wrong']:g} | {' | '.join(ratios)} |")
    lines += [
        "",
        f"Tests a second on one core: {result['tests_per_s_core']:g}. CPU time of a program that computes, over plain CPython's: "
        f"{result['cpu_overhead']:g}.",
    ]
    return "\n".join(lines)


def write_tables(document: Path, result: dict[str, Any]) -> None:
    """Puts the tables into a document, between the marks."""
    before, _, rest = document.read_text().partition(MARKS[0])
    document.write_text(f"{before}{MARKS[0]}\n\n{tables(result)}\n\n{MARKS[1]}{rest.partition(MARKS[1])[2]}")


@click.command()
@click.option("--data", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--out", type=click.Path(path_type=Path))
@click.option("--limit", type=int, help="Problems of each set at most, to try it out.")
def main(data: Path, out: Path | None, limit: int | None) -> None:
    """Measures accuracy and speed; the last line is the result as JSON."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # one core for all
    peers = {name: make() for name, make in judge_peers.PEER_MAKERS.items()}
    sets = {name: judge_sets.sample(make(data), limit) for name, make in judge_sets.SETS.items()}
    sets["Code Jam"] = judge_sets.sample(sets["Code Jam"], CODEJAM_PROBLEMS)
    pack = timed(sets["HumanEvalPack"])
    for_all = sorted(
        (item for item in pack if all(peer.takes(item.problem) for peer in peers.values())), key=lambda item: not item.is_right
    )
    measured, accepted = speed(for_all, peers)
    table = {name: accuracy(timed(items), peers) for name, items in sets.items() if name != "HumanEvalPack"}
    chains = {f"{OURS}, {chain}": errors(pack, run_ours(pack, chain=chain).accepted) for chain in CHAINS}
    table["HumanEvalPack"] = chains | {name: errors(for_all, said) for name, said in accepted.items() if name != OURS}
    ours = [rows[f"{OURS}, guarded"] for rows in table.values()]
    result = {
        **{key: value for key, value in measured.items() if key != "seconds"},
        "cpu_overhead": round(cpu_overhead(), 3),
        "false_accepts": sum(one["false_accepts"] for one in ours),
        "false_rejects": sum(one["false_rejects"] for one in ours),
    }
    if out:
        environment = {"machine": platform.machine(), "python": platform.python_version(), "peers": judge_peers.versions()}
        whole = {**result, "accuracy": table, "seconds": measured["seconds"], "environment": environment}
        out.write_text(json.dumps(whole, indent=1) + "\n")
        write_tables(out.with_suffix(".md"), whole)
    click.echo(json.dumps(result))


if __name__ == "__main__":
    main()
