"""`microcoder judge`: run programs on the tests of their problems."""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from microcoder_core.config import build_config, load_values
from microcoder_core.errors import InputError, JudgeError
from microcoder_core.judge.config import TOKEN_VARIABLE, Chain, JudgeConfig, SandboxMode
from microcoder_core.judge.judge import Judge, open_judge
from microcoder_core.judge.programs_file import load_problems, read_programs
from microcoder_core.progress import track
from microcoder_core.records import Dropped, Problem, Verdict
from microcoder_core.storage.atomic import atomic_file, check_replaceable
from microcoder_core.storage.datasets import count_problems, read_problems
from microcoder_core.storage.rows import dump_row, write_rows

if TYPE_CHECKING:
    from microcoder_core.data.checkers import Proposal

_SHOWN = 20
"""Weak problems printed."""
_PATH = click.Path(path_type=Path)


@click.group()
def judge() -> None:
    """Run programs on the tests of their problems."""


@judge.command()
@click.option("--problems", type=_PATH, required=True, metavar="DATASET", help="Data set folder, or a JSON Lines file of problems.")
@click.option(
    "--programs", type=_PATH, required=True, metavar="FILE", help='Lines of {"problem_id", "program_id"?, "code" | "completion"}.'
)
@click.option("--out", type=_PATH, required=True, metavar="FILE", help="Verdict file to write: one judgement a line, in input order.")
@click.option("--workers", type=int, help="Programs run at a time; as many as there are processors when left out.")
@click.option("--chain", type=click.Choice(get_args(Chain)), help="Compare methods (guarded).")
@click.option("--sandbox", type=click.Choice(get_args(SandboxMode)), help="Isolation (auto: the strongest that holds).")
@click.option("--time-limit", "time_limit_s", type=float, help="CPU seconds a test where the problem names none.")
@click.option("--url", metavar="URL", help="A judge service that runs them; its settings must be those asked for.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for machines.")
def run(problems: Path, programs: Path, out: Path, as_json: bool, **settings: Any) -> None:
    """Judge each program of a file; print how many had which verdict."""
    config = build_config(JudgeConfig, {key: value for key, value in settings.items() if value is not None}, "judge")
    _check_jsonl(out)
    if out.exists() and any(out.samefile(given) for given in (problems, programs) if given.exists()):
        raise InputError(f"out: must be another file than the input, got {out}")
    known, total = load_problems(problems, programs)
    counts: Counter[str] = Counter()
    failure = ""
    with atomic_file(out) as stream, open_judge(config) as running:
        judgements = running.judge_many(_items(known, programs))
        for judgement in track(judgements, "judge", total):
            stream.write(dump_row(judgement.model_dump(mode="json")))
            counts[judgement.verdict.value] += 1
            failure = judgement.detail
    _print_summary(counts, total, running.layers, out, as_json)
    if counts[Verdict.JUDGE_ERROR] == total:
        raise JudgeError(f"no program could be graded ({failure})")


def _check_jsonl(out: Path | None) -> None:
    if out is not None and out.suffix != ".jsonl":
        raise InputError(f"out: must be a file named .jsonl, got {out}")


def _items(problems: dict[str, Problem], programs: Path) -> Iterator[tuple[Problem, str | None, str | None]]:
    for _, row in read_programs(programs):
        yield problems[row.problem_id], row.program, row.program_id


def _print_summary(counts: Counter[str], total: int, layers: tuple[str, ...], out: Path, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"programs": total, "verdicts": dict(counts), "sandbox": layers, "out": str(out)}))
        return
    for verdict in Verdict:
        if counts[verdict]:
            click.echo(f"{verdict.value:24}{counts[verdict]:8}")
    click.echo(f"{'programs':24}{total:8}   sandbox: {', '.join(layers)}")


@judge.command()
@click.option("--host", help="Address to listen on (127.0.0.1); 0.0.0.0 for every one.")
@click.option("--port", type=int, help="Port to listen on (8080); 0 takes a free one.")
@click.option("--workers", type=int, help="Programs run at a time; as many as there are processors when left out.")
@click.option("--chain", type=click.Choice(get_args(Chain)), help="Compare methods (guarded).")
@click.option("--sandbox", type=click.Choice(get_args(SandboxMode)), help="Isolation (auto: the strongest that holds).")
@click.option("--time-limit", "time_limit_s", type=float, help="CPU seconds a test where the problem names none.")
@click.option("--max-programs", type=int, help="Programs taken and not yet answered at most (4096); beyond that, 429.")
@click.option("--max-request-mib", type=int, help="Size of a request at most (64); beyond that, 413.")
@click.option("--drain", "drain_s", type=float, help="Seconds that requests may go on after SIGTERM (30).")
@click.option("--config", "file", type=_PATH, metavar="FILE", help="YAML file of settings.")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
def serve(file: Path | None, overrides: tuple[str, ...], **options: Any) -> None:
    """Judge programs for others over HTTP, until SIGTERM; its pages are at /docs.

    Callers must send the token of the environment variable MICROCODER_JUDGE_TOKEN, where that is set.
    """
    from microcoder_core.judge.service.config import ServiceConfig
    from microcoder_core.judge.service.server import serve as run_service

    given = {key: value for key, value in options.items() if value is not None}
    values = load_values([file] if file else [], overrides)
    judge_options = {key: given.pop(key) for key in tuple(given) if key in JudgeConfig.model_fields}
    if judge_options:
        given["judge"] = {**(values.get("judge") or {}), **judge_options}
    config = build_config(ServiceConfig, values | given, "")
    if config.judge.url is not None:
        raise InputError("judge.url: a service runs programs itself; leave it out")
    run_service(config, os.environ.get(TOKEN_VARIABLE) or None, _say_listening)


def _say_listening(address: str, running: Judge) -> None:
    click.echo(f"listening on {address} ({running.config.num_workers} workers; sandbox: {', '.join(running.layers)})")


@judge.command()
@click.argument("dataset", type=_PATH)
@click.option("--out", type=_PATH, metavar="FILE", help="File named .jsonl for the weak problems, one a line, with what they accept.")
@click.option("--workers", type=int, help="Programs run at a time; as many as there are processors when left out.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for machines.")
def audit(dataset: Path, out: Path | None, workers: int | None, as_json: bool) -> None:
    """Find problems whose tests or checker accept an answer that solves nothing.

    Tried are answers without looking, right answers spoilt (order, case, off by one), and the problem's own wrong solutions.
    """
    from microcoder_core.judge.audit import audit as run_audit

    config = build_config(JudgeConfig, {"workers": workers}, "judge")
    _check_jsonl(out)
    total, by_name = count_problems(dataset), Counter[str]()
    weak: list[dict[str, Any]] = []
    with Judge(config) as running:
        for result in track(run_audit(read_problems(dataset), running), "audit", total):
            if result.accepted:
                by_name.update({answer.name for answer in result.accepted})
                accepted = [{"name": answer.name, "what": answer.what} for answer in result.accepted]
                weak.append({"problem_id": result.problem.problem_id, "accepted": accepted})
    if out:
        write_rows(out, weak)
    if as_json:
        click.echo(json.dumps({"problems": total, "weak": len(weak), "by_name": dict(by_name), "out": str(out) if out else None}))
        return
    for row in weak[:_SHOWN]:
        click.echo(f"{row['problem_id']}: {'; '.join(answer['what'] for answer in row['accepted'])}")
    if len(weak) > _SHOWN:
        click.echo(f"... and {len(weak) - _SHOWN} more{'' if out else '; --out FILE has them all'}")
    names = ", ".join(f"{name} {count}" for name, count in by_name.most_common())
    click.echo(f"{len(weak)} of {total} problems accept an answer that solves nothing{f': {names}' if names else ''}")


@judge.command()
@click.argument("dataset", type=_PATH)
@click.option("--out", type=_PATH, metavar="DATASET", help="Data set to write, with the proposals in it.")
@click.option("--references/--no-references", default=True, show_default=True, help="Judge reference solutions too.")
@click.option("--json", "as_json", is_flag=True, help="Print the proposals as JSON, one a line, for machines.")
def checker(dataset: Path, out: Path | None, references: bool, as_json: bool) -> None:
    """Propose a checker for each problem whose statement or references ask for another.

    With --out, problems of which several answers are right are left out (several_answers): only a checker of their own could tell.
    """
    from microcoder_core.data.checkers import propose
    from microcoder_core.storage.datasets import DATASET_KIND, DatasetWriter, LineageStep, content_sha256, lineage

    if out:
        check_replaceable(out, DATASET_KIND)
    proposals: list[Proposal] = []
    with contextlib.ExitStack() as stack:
        submit = stack.enter_context(Judge()).submit if references else None
        writer = None
        if out:
            step = LineageStep(stage="checker", inputs={"problems": content_sha256(dataset)})
            writer = stack.enter_context(DatasetWriter(out, step, lineage(dataset)))
        for problem in track(read_problems(dataset), "checker", count_problems(dataset)):
            proposal = propose(problem, submit)
            if proposal:
                proposals.append(proposal)
            if writer:
                writer.take(_with_proposal(problem, proposal))
    for proposal in proposals:
        click.echo(proposal.model_dump_json() if as_json else _proposal_line(proposal))
    if not as_json:
        click.echo(f"{len(proposals)} proposals for {count_problems(dataset)} problems{f'; data set {out}' if out else ''}")


def _with_proposal(problem: Problem, proposal: Proposal | None) -> Problem | Dropped:
    if proposal is None:
        return problem
    if proposal.checker is None:
        return Dropped(record_id=problem.problem_id, reason="several_answers", detail=proposal.reason)
    return problem.model_copy(update={"checker": proposal.checker})


def _proposal_line(proposal: Proposal) -> str:
    if proposal.checker is None:
        return f"{proposal.problem_id}: {proposal.present} -> a checker of its own: {proposal.reason}"
    tolerances = "".join(
        f" {name}={value:g}" for name, value in (("abs", proposal.checker.abs), ("rel", proposal.checker.rel)) if value is not None
    )
    return f"{proposal.problem_id}: {proposal.present} -> {proposal.checker.kind}{tolerances}: {proposal.reason}"
