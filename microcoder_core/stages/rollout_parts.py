"""What the trainer takes as Protocols, made from judge and diversity: the rewarder, the watcher, the tasks."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import Any

from microcoder_core.diversity.measures import distinct_n, distinct_programs, mean_of, pairwise_dissimilarity
from microcoder_core.grpo.rollout import Group, Task
from microcoder_core.judge.judge import Judge
from microcoder_core.programs import extract_program
from microcoder_core.records import Completion, Judgement, Outcome, Problem
from microcoder_core.sampling.prompt import PromptTemplate

_REMEMBERED_PROGRAMS = 4096


class JudgeRewarder:
    """Judges the program of each completion, and one that it has just judged for the same problem only once."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._verdicts: OrderedDict[tuple[int, str | None], tuple[Problem, Future[Judgement]]] = OrderedDict()

    def submit(self, problem: Problem, completion: Completion) -> Future[Judgement]:
        """See `Rewarder.submit`."""
        program = extract_program(completion.text, completion.finish_reason)
        key = (id(problem), program)  # the problem is kept with the verdict, so that its id stays its own
        known = self._verdicts.get(key)
        if known is None or _failed_to_grade(known[1]):
            known = self._verdicts[key] = (problem, self._judge.submit(problem, program))
        self._verdicts.move_to_end(key)
        while len(self._verdicts) > _REMEMBERED_PROGRAMS:
            self._verdicts.popitem(last=False)
        return known[1]


def _failed_to_grade(verdict: Future[Judgement]) -> bool:
    return verdict.done() and (verdict.exception() is not None or verdict.result().outcome is Outcome.UNGRADED)


class DiversityWatcher:
    """Measures how different the responses of each group are."""

    def observe(self, groups: Sequence[Group]) -> dict[str, float]:
        """See `Watcher.observe`."""
        return diversity_metrics([[sample.completion for sample in group.samples] for group in groups])


def diversity_metrics(groups: Iterable[Sequence[Completion]]) -> dict[str, float]:
    """Diversity by metric name: the mean over groups of each measure; one that no group has is left out."""
    measured = [
        {
            "microcoder/diversity": distinct_n([completion.token_ids for completion in group]),
            "microcoder/pairwise_dissimilarity": pairwise_dissimilarity([completion.token_ids for completion in group]),
            "microcoder/distinct_programs_frac": distinct_programs(group),
        }
        for group in groups
    ]
    means = {name: mean_of([one[name] for one in measured]) for name in (measured[0] if measured else ())}
    return {name: value for name, value in means.items() if value is not None}


def make_tasks(problems: Iterable[Problem], template: PromptTemplate, tokenizer: Any) -> list[Task]:
    """Each problem with the tokens of its prompt."""
    return [Task(problem, tuple(template.token_ids(template.render_text(problem), tokenizer))) for problem in problems]
