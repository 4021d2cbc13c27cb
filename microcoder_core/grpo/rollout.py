"""A rollout: groups of judged completions, and how one is collected while the judge works."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from typing import Protocol

from microcoder_core.errors import JudgeError
from microcoder_core.grpo.health import still_alive
from microcoder_core.records import Completion, Judgement, Outcome, Problem
from microcoder_core.sampling.base import Sampler


class Rewarder(Protocol):
    """Judges completions while others are still written."""

    def submit(self, problem: Problem, completion: Completion) -> Future[Judgement]:
        """Starts judging; returns at once."""
        ...


class Watcher(Protocol):
    """Measures something on each rollout; its numbers join the step's metrics."""

    def observe(self, groups: Sequence[Group]) -> dict[str, float]:
        """Metrics by name."""
        ...


@dataclass(frozen=True, slots=True)
class Task:
    """A problem with the tokens that ask for its program."""

    problem: Problem
    prompt_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """A judged completion."""

    completion: Completion
    judgement: Judgement

    @property
    def length(self) -> int:
        """Completion tokens."""
        return len(self.completion.token_ids)

    @property
    def is_truncated(self) -> bool:
        """Cut off at the length limit."""
        return self.completion.finish_reason == "length"

    @property
    def is_graded(self) -> bool:
        """Whether the judge could say anything; else the sample counts nowhere."""
        return self.judgement.outcome is not Outcome.UNGRADED

    @property
    def is_correct(self) -> bool:
        return self.judgement.outcome is Outcome.CORRECT


@dataclass(frozen=True, slots=True)
class Group:
    """The completions of one problem in one step."""

    task: Task
    samples: tuple[Sample, ...]

    @property
    def is_mixed(self) -> bool:
        """Whether there are right and wrong completions among the graded ones."""
        return len({sample.is_correct for sample in self.samples if sample.is_graded}) == 2


def collect_rollout(
    tasks: Sequence[Task],
    sampler: Sampler,
    rewarder: Rewarder,
    *,
    seeds: Sequence[Sequence[int]],
    group_size: int,
    temperature: float,
    max_new_tokens: int,
    judge_deadline_s: float,
) -> list[Group]:
    """Samples and judges a group for each task; judging goes on while sampling does.

    Args:
        seeds: One a task, see `Sampler.sample`.

    Raises:
        JudgeError: Sampling has ended, and the judge gave no answer for `judge_deadline_s`.
    """
    verdicts: dict[tuple[int, int], Future[Judgement]] = {}

    def judge(prompt: int, sample: int, completion: Completion) -> None:
        still_alive()
        verdicts[prompt, sample] = rewarder.submit(tasks[prompt].problem, completion)

    completions = sampler.sample(
        [task.prompt_ids for task in tasks],
        seeds=seeds,
        group_size=group_size,
        temperature=temperature,
        max_new_tokens=max_new_tokens,
        on_finished=judge,
    )
    _await_verdicts(set(verdicts.values()), judge_deadline_s)
    return [
        Group(task, tuple(Sample(completion, verdicts[prompt, number].result()) for number, completion in enumerate(completions[prompt])))
        for prompt, task in enumerate(tasks)
    ]


def check_graded(groups: Sequence[Group]) -> None:
    """Raises JudgeError where the judge could grade no completion of any group."""
    if not any(sample.is_graded for group in groups for sample in group.samples):
        detail = groups[0].samples[0].judgement.detail
        raise JudgeError(f"the judge could grade no completion ({detail}); mend it, then run again (training: with --resume)")


def _await_verdicts(waiting: set[Future[Judgement]], judge_deadline_s: float) -> None:
    """Waits for all verdicts, as long as one comes every now and then."""
    while waiting:
        still_alive()
        done, waiting = wait(waiting, timeout=judge_deadline_s, return_when=FIRST_COMPLETED)
        if not done:
            raise JudgeError(f"the judge gave no answer for {judge_deadline_s:g} s; check it, then run again (training: with --resume)")
