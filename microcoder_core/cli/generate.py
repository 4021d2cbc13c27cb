"""`microcoder generate`."""

from __future__ import annotations

import math
from pathlib import Path

import click

from microcoder_core.cli.options import PATH, model_option
from microcoder_core.errors import InputError
from microcoder_core.records import Completion, Problem


@click.command()
@model_option
@click.option("--prompt", metavar="TEXT", help="What to ask, as it stands.")
@click.option("--problem", "problem_id", metavar="ID", help="A problem of --problems, asked as in training.")
@click.option("--problems", type=PATH, metavar="D", help="Data set of --problem.")
@click.option("--samples", type=click.IntRange(min=1), default=1, show_default=True, help="Completions.")
@click.option("--temperature", type=click.FloatRange(min=0), default=0.6, show_default=True, help="0 is greedy.")
@click.option("--max-new-tokens", type=click.IntRange(min=1), help="Length limit. Default: 1024, or what the model has room for.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
def generate(
    model: str,
    prompt: str | None,
    problem_id: str | None,
    problems: Path | None,
    samples: int,
    temperature: float,
    max_new_tokens: int | None,
    seed: int,
) -> None:
    """Show what a model writes for a prompt, or for a problem with the verdict on it."""
    if (prompt is None) == (problem_id is None):
        raise click.UsageError("give either --prompt TEXT or --problem ID")
    if not math.isfinite(temperature):
        raise click.UsageError(f"--temperature must be a finite number, got {temperature}")
    if (problem_id is None) != (problems is None):
        raise click.UsageError("--problem ID and --problems D go together")

    from microcoder_core.sampling.base import prompt_seeds
    from microcoder_core.sampling.models import load_model, set_torch_threads
    from microcoder_core.sampling.transformers_sampler import TransformersSampler
    from microcoder_core.stages.model_source import resolve_model
    from microcoder_core.storage.datasets import find_problem

    problem = find_problem(problems, problem_id) if problems and problem_id else None
    set_torch_threads(None)
    loaded = load_model(resolve_model(model))
    text = loaded.prompt_template.render_text(problem) if problem else prompt or ""
    prompt_ids = loaded.prompt_template.token_ids(text, loaded.tokenizer)
    if not prompt_ids:
        raise InputError("prompt: must hold at least one token, got none; give a text")
    if max_new_tokens is None:
        max_new_tokens = max(1, min(1024, (loaded.max_positions or 1 << 20) - len(prompt_ids)))
    loaded.check_room(len(prompt_ids), max_new_tokens, "this one")
    sampler = TransformersSampler(loaded.model, loaded.tokenizer)
    (completions,) = sampler.sample(
        [prompt_ids], seeds=prompt_seeds((seed,), 1), group_size=samples, temperature=temperature, max_new_tokens=max_new_tokens
    )
    for completion in completions:
        click.echo(completion.text)
        if problem:
            click.echo(f"-- {_verdict(problem, completion)}")


def _verdict(problem: Problem, completion: Completion) -> str:
    from microcoder_core.judge.judge import Judge, JudgeConfig
    from microcoder_core.programs import extract_program

    with Judge(JudgeConfig(workers=1)) as judge:
        judgement = judge.submit(problem, extract_program(completion.text, completion.finish_reason)).result()
    passed = f"{judgement.tests_passed} of {judgement.tests_total} tests passed"
    return "; ".join(part for part in (judgement.verdict.value, passed, judgement.detail) if part)
