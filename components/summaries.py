"""What the KFP UI shows of a stage's result: numbers to compare runs by, and a short Markdown text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from microcoder_core.stages.results import EvaluationResult, ProbeResult, PromotionResult, TrainResult
from microcoder_core.storage.datasets import Manifest


class Summary(NamedTuple):
    """A result as numbers and as text."""

    numbers: dict[str, float]
    markdown: str


def of_dataset(manifest: Manifest) -> Summary:
    """How many problems came in, how many were kept, and why the rest were not."""
    numbers = {"problems_in": float(manifest.records_in), "problems_kept": float(manifest.problems)}
    dropped = {f"dropped_{reason}": float(count) for reason, count in manifest.dropped.items()}
    rows = [("in", manifest.records_in), ("kept", manifest.problems), *((f"dropped: {r}", n) for r, n in manifest.dropped.items())]
    return Summary(numbers | dropped, _table(("problems", "number"), rows))


def of_probe(result: ProbeResult) -> Summary:
    """The chosen temperature, and the measurements that led to it."""
    columns = ("temperature", "diversity", "pass@1", "mean length", "truncated")
    rows = [(p.temperature, p.diversity, p.pass_at_1, p.mean_length, p.truncated_frac) for p in result.grid]
    measured = {point.temperature: point.diversity for point in result.grid}
    numbers = {"temperature": result.temperature}
    if result.temperature in measured:
        numbers["diversity"] = measured[result.temperature]
    return Summary(numbers, f"**Temperature {result.temperature:g}**: {result.reason}\n\n{_table(columns, rows)}")


def of_training(result: TrainResult) -> Summary:
    """How training went: each metric over the first and the last tenth of the steps."""
    rows = [(name, result.first.get(name, ""), value) for name, value in result.last.items()]
    counts = {"steps": result.steps, "samples": result.samples, "tokens": result.tokens}
    numbers = {name: float(count) for name, count in counts.items()} | {f"last_{_plain(k)}": v for k, v in result.last.items()}
    title = ", ".join(f"{count} {name}" for name, count in counts.items())
    return Summary(numbers, f"{title}\n\n{_table(('metric', 'first tenth', 'last tenth'), rows)}")


def of_evaluation(result: EvaluationResult) -> Summary:
    """pass@k over all problems and by difficulty."""
    ks = list(result.pass_at_k)
    tables = {"all": (result.problems, result.pass_at_k)}
    tables |= {name: (table.problems, table.pass_at_k) for name, table in result.by_difficulty.items()}
    rows = [(name, problems, *(scores.get(k, "") for k in ks)) for name, (problems, scores) in tables.items()]
    numbers = {f"pass_at_{k}": value for k, value in result.pass_at_k.items()} | {"diversity": result.diversity}
    settings = f"{result.samples} samples a problem at temperature {result.temperature:g}, {result.max_new_tokens} new tokens at most"
    return Summary(numbers, f"{settings}\n\n{_table(('problems', 'number', *(f'pass@{k}' for k in ks)), rows)}")


def of_promotion(result: PromotionResult) -> Summary:
    """Whether the trained model took over, and why."""
    decision = "promoted" if result.promoted else "not promoted"
    interval = f"difference {result.difference:+.3f} ({result.ci_low:+.3f} to {result.ci_high:+.3f}), margin {result.margin:g}"
    names = ("base_pass_at_1", "trained_pass_at_1", "difference", "ci_low", "ci_high")
    numbers = {name: float(getattr(result, name)) for name in names} | {"promoted": float(result.promoted)}
    return Summary(numbers, f"**{result.model_name}: {decision}.** {result.reason}\n\n{interval}\n")


def of_seconds(seconds: Mapping[str, float]) -> Summary:
    """How long each stage took."""
    numbers = {f"seconds_{stage}": value for stage, value in seconds.items()}
    return Summary(numbers, _table(("stage", "seconds"), [(stage, f"{value:.1f}") for stage, value in seconds.items()]))


def _table(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    lines = [list(columns)]
    lines.append(["---"] * len(lines[0]))
    lines.extend([_cell(value) for value in row] for row in rows)
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value).replace("|", "\\|")


def _plain(name: str) -> str:
    return name.replace("/", "_")
