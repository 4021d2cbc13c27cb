"""The stage `evaluate`: unbiased pass@k of a model on a data set, with a record of every problem and completion."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator

from microcoder_core.config import Config
from microcoder_core.errors import InputError
from microcoder_core.grpo.config import Count, Positive
from microcoder_core.grpo.rollout import Group, Rewarder, check_graded, collect_rollout
from microcoder_core.judge.judge import JudgeConfig, open_judge
from microcoder_core.judge.pass_at_k import pass_at_k
from microcoder_core.progress import Progress
from microcoder_core.records import Completion, Judgement, Problem, check_iso_day, first_day, last_day
from microcoder_core.sampling.base import Dtype, prompt_seeds
from microcoder_core.sampling.config import SamplerConfig
from microcoder_core.sampling.models import load_model, set_torch_threads
from microcoder_core.stages.model_source import model_sha256, resolve_model
from microcoder_core.stages.results import EvaluationResult, ProblemScore, ScoreTable
from microcoder_core.stages.rollout_parts import JudgeRewarder, diversity_metrics, make_tasks, open_sampler
from microcoder_core.storage.atomic import atomic_folder, check_replaceable
from microcoder_core.storage.datasets import content_sha256, read_problems
from microcoder_core.storage.rows import dump_row
from microcoder_core.storage.stage_output import StageRecord, write_stage_record
from microcoder_core.tracking import Tracker

IsoDay = Annotated[str, AfterValidator(check_iso_day)]


class EvaluateConfig(Config):
    """How a model is asked and scored."""

    samples: Count = 10
    """Completions a problem."""
    k: Annotated[tuple[Count, ...], Field(min_length=1)] = (1, 5, 10)
    """pass@k for each; the largest may not exceed `samples`. Source: the seed's quick start."""
    temperature: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.6
    """0 is greedy. Chosen; state it beside every number."""
    max_new_tokens: Count = 8192
    """Length limit, tokens. Source: paper (trained at 4K, tested at 8K)."""
    date_from: IsoDay | None = None
    """Only problems published on this ISO date or later (LiveCodeBench's practice: after the model's training data)."""
    date_to: IsoDay | None = None
    """Only problems published on this ISO date or earlier."""
    seed: Annotated[int, Field(ge=0)] = 0
    dtype: Dtype = "auto"
    """Of the weights."""
    sampler: SamplerConfig = SamplerConfig()
    """What writes the completions."""
    judge: JudgeConfig = JudgeConfig()
    """How programs are judged."""
    judge_deadline_s: Positive = 600.0
    """How long a judge that does not answer is waited for."""
    torch_threads: Count | None = None
    """CPU threads of torch; null: OMP_NUM_THREADS, else one a core."""

    @model_validator(mode="after")
    def _enough_samples(self) -> Self:
        if max(self.k) > self.samples:
            raise ValueError(f"samples must be at least the largest k ({max(self.k)}), got {self.samples}")
        return self


def evaluate(config: EvaluateConfig, *, model: str, problems: Path, out: Path, tracker: Tracker) -> EvaluationResult:
    """Samples, judges and scores; `out` gets stage.json, problems.jsonl and completions.jsonl.

    Raises:
        InputError: Bad input, or no problem in the date window.
        JudgeError: Not one completion could be graded.
    """
    check_replaceable(out, "evaluation")
    tracker.log_params(config.flat() | {"model": model})
    tracker.log_dataset(problems, "evaluation")
    inputs = {"problems": content_sha256(problems), "model": model, "model_sha256": model_sha256(model)}
    chosen = [problem for problem in read_problems(problems) if in_window(problem.date, config.date_from, config.date_to)]
    if not chosen:
        window = f"from {config.date_from or 'the beginning'} to {config.date_to or 'today'}"
        raise InputError(f"{problems}: no problem has a date {window}; widen the window")
    set_torch_threads(config.torch_threads)
    loaded = load_model(resolve_model(model), config.dtype)
    tasks = make_tasks(chosen, loaded, config.max_new_tokens)
    with (
        open_judge(config.judge) as running_judge,
        open_sampler(config.sampler, loaded) as sampler,
        Progress("evaluate", len(tasks) * config.samples) as progress,
    ):
        sampler.update_weights(loaded.model.state_dict().items(), 0)
        groups = collect_rollout(
            tasks,
            sampler,
            _Counted(JudgeRewarder(running_judge), progress),
            group_size=config.samples,
            temperature=config.temperature,
            max_new_tokens=config.max_new_tokens,
            seeds=prompt_seeds((config.seed,), len(tasks)),
            judge_deadline_s=config.judge_deadline_s,
        )
    check_graded(groups)
    result = summarise(config, model, groups)
    tracker.log_metrics(_metrics(result))
    record = StageRecord(
        stage="evaluate",
        config=config.model_dump(mode="json"),
        inputs=inputs,
        result=result.model_dump(mode="json"),
    )
    with atomic_folder(out, "evaluation") as folder:
        _write_rows(folder / "problems.jsonl", (score(group).model_dump(mode="json", exclude_none=True) for group in groups))
        _write_rows(folder / "completions.jsonl", (row for group in groups for row in _completion_rows(group)))
        write_stage_record(folder, record)
    tracker.log_artifact(out / "problems.jsonl")
    return result


class _Counted:
    """A rewarder that counts each completion as it comes to be judged."""

    def __init__(self, rewarder: Rewarder, progress: Progress) -> None:
        self._rewarder = rewarder
        self._progress = progress

    def submit(self, problem: Problem, completion: Completion) -> Future[Judgement]:
        """See `Rewarder.submit`."""
        self._progress.advance()
        return self._rewarder.submit(problem, completion)


def in_window(date: str | None, date_from: str | None, date_to: str | None) -> bool:
    """Whether a problem surely falls in the window: a date that is a year alone counts only where the whole year does."""
    if date_from is None and date_to is None:
        return True
    if date is None:
        return False
    return (date_from is None or first_day(date) >= date_from) and (date_to is None or last_day(date) <= date_to)


def score(group: Group) -> ProblemScore:
    """How one problem went."""
    problem = group.task.problem
    return ProblemScore(
        problem_id=problem.problem_id,
        difficulty=problem.difficulty,
        date=problem.date,
        samples=len(group.samples),
        correct=sum(sample.is_correct for sample in group.samples),
        ungraded=sum(not sample.is_graded for sample in group.samples),
    )


def summarise(config: EvaluateConfig, model: str, groups: Sequence[Group]) -> EvaluationResult:
    """The numbers of an evaluation."""
    scores = [score(group) for group in groups]
    samples = [sample for group in groups for sample in group.samples]
    verdicts = Counter(sample.judgement.verdict.value for sample in samples)
    measured = diversity_metrics([[sample.completion for sample in group.samples] for group in groups])
    levels = [level for level in ("easy", "medium", "hard") if any(one.difficulty == level for one in scores)]
    by_difficulty = {level: [one for one in scores if one.difficulty == level] for level in levels}
    return EvaluationResult(
        model=model,
        problems=len(scores),
        samples=config.samples,
        pass_at_k=mean_pass_at_k(scores, config.k),
        by_difficulty={
            level: ScoreTable(problems=len(rows), pass_at_k=mean_pass_at_k(rows, config.k)) for level, rows in by_difficulty.items()
        },
        verdicts={verdict: count / len(samples) for verdict, count in sorted(verdicts.items())},
        ungraded=sum(one.ungraded for one in scores),
        diversity=measured.get("microcoder/diversity", 0.0),
        distinct_programs_frac=measured.get("microcoder/distinct_programs_frac", 0.0),
        mean_length=statistics.fmean(sample.length for sample in samples),
        truncated_frac=statistics.fmean(sample.is_truncated for sample in samples),
        temperature=config.temperature,
        max_new_tokens=config.max_new_tokens,
        date_from=config.date_from,
        date_to=config.date_to,
    )


def mean_pass_at_k(scores: Iterable[ProblemScore], ks: Sequence[int]) -> dict[str, float]:
    """Mean pass@k over the problems with at least k graded completions; a k that no problem reaches is left out."""
    scores = list(scores)
    means = {}
    for k in ks:
        values = [pass_at_k(one.samples - one.ungraded, one.correct, k) for one in scores if one.samples - one.ungraded >= k]
        if values:
            means[str(k)] = statistics.fmean(values)
    return means


def _metrics(result: EvaluationResult) -> dict[str, float]:
    metrics = {f"eval/pass@{k}": value for k, value in result.pass_at_k.items()}
    for level, table in result.by_difficulty.items():
        metrics |= {f"eval/{level}/pass@{k}": value for k, value in table.pass_at_k.items()}
    metrics |= {f"eval/verdict_{verdict}_frac": share for verdict, share in result.verdicts.items()}
    named = ("problems", "ungraded", "diversity", "distinct_programs_frac", "mean_length", "truncated_frac")
    return metrics | {f"eval/{name}": float(getattr(result, name)) for name in named}


def _completion_rows(group: Group) -> Iterator[dict[str, Any]]:
    problem: Problem = group.task.problem
    for number, sample in enumerate(group.samples):
        yield {
            "problem_id": problem.problem_id,
            "sample": number,
            "prompt": problem.statement,
            "text": sample.completion.text,
            "finish_reason": sample.completion.finish_reason,
            "verdict": sample.judgement.verdict.value,
            "detail": sample.judgement.detail,
        }


def _write_rows(file: Path, rows: Iterable[dict[str, Any]]) -> None:
    with file.open("w", encoding="utf-8") as stream:
        stream.writelines(dump_row(row) for row in rows)
