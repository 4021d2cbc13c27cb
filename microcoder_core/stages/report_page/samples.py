"""Which completions the page shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from microcoder_core.records import Verdict, parse_record
from microcoder_core.storage.rows import read_rows


class Sample(BaseModel):
    """One completion of the trained model with its verdict: a line of an evaluation's `completions.jsonl`."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    problem_id: str
    sample: int = 0
    text: str
    finish_reason: str | None = None
    verdict: Verdict
    detail: str | None = None
    prompt: str | None = None


def choose_samples(completions: Path, training_samples: Path, count: int, max_chars: int) -> tuple[Sample, ...]:
    """`count` completions with verdicts as varied as can be: the first of each verdict, then the second of each, and so on.

    Takes another problem each time where it can. The same file gives the same choice; memory holds `count` rows a verdict.

    Args:
        training_samples: Where to look for the prompt of a completion that does not carry it.
    """
    if not completions.is_file() or count == 0:
        return ()
    queues = _first_rows(completions, count)
    chosen: list[Sample] = []
    while len(chosen) < count and any(queues.values()):
        for verdict in Verdict:
            if queues[verdict] and len(chosen) < count:
                chosen.append(_take(queues[verdict], {sample.problem_id for sample in chosen}))
    prompts = _prompts(training_samples, {sample.problem_id for sample in chosen if sample.prompt is None})
    return tuple(_finished(sample, prompts, max_chars) for sample in chosen)


def _first_rows(completions: Path, count: int) -> dict[Verdict, list[Sample]]:
    """The first `count` completions of each verdict, those of another problem before the repeats."""
    fresh: dict[str, list[Sample]] = {verdict: [] for verdict in Verdict}
    repeats: dict[str, list[Sample]] = {verdict: [] for verdict in Verdict}
    for line, row in read_rows(completions):
        verdict = str(row.get("verdict"))
        seen = any(row.get("problem_id") == sample.problem_id for sample in fresh.get(verdict, ()))
        queues = repeats if seen else fresh
        if len(queues.get(verdict, ())) < count:
            sample = parse_record(Sample, row, f"{completions}:{line}")
            queues[sample.verdict].append(sample)
    return {verdict: (fresh[verdict] + repeats[verdict])[:count] for verdict in Verdict}


def _take(queue: list[Sample], seen: set[str]) -> Sample:
    fresh = (index for index, sample in enumerate(queue) if sample.problem_id not in seen)
    return queue.pop(next(fresh, 0))


def _prompts(training_samples: Path, wanted: set[str]) -> dict[str, str]:
    if not wanted or not training_samples.is_file():
        return {}
    found: dict[str, str] = {}
    for row in _rows(training_samples):
        if row.get("problem_id") in wanted and isinstance(row.get("prompt"), str):
            found.setdefault(row["problem_id"], row["prompt"])
    return found


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    return (row for _, row in read_rows(file))


def _finished(sample: Sample, prompts: dict[str, str], max_chars: int) -> Sample:
    prompt = sample.prompt if sample.prompt is not None else prompts.get(sample.problem_id)
    return sample.model_copy(update={"prompt": None if prompt is None else _cut(prompt, max_chars), "text": _cut(sample.text, max_chars)})


def _cut(text: str, max_chars: int) -> str:
    """Long text without its middle: the end of a completion tells how it ended."""
    if len(text) <= max_chars:
        return text
    half = max_chars // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"
