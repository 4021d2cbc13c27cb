"""What the trainer takes as Protocols, made from judge and diversity: the rewarder, the watcher, the tasks, the sampler."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future

from microcoder_core.diversity.measures import distinct_n, distinct_programs, mean_of, pairwise_dissimilarity
from microcoder_core.errors import InputError
from microcoder_core.grpo.rollout import Group, Task
from microcoder_core.judge.judge import AnyJudge
from microcoder_core.programs import extract_program
from microcoder_core.records import Completion, Difficulty, Judgement, Problem
from microcoder_core.sampling.base import TrainedSampler
from microcoder_core.sampling.config import SamplerConfig
from microcoder_core.sampling.models import LoadedModel
from microcoder_core.sampling.transformers_sampler import TransformersSampler, end_token_ids


class JudgeRewarder:
    """Judges the program of each completion."""

    def __init__(self, judge: AnyJudge) -> None:
        self._judge = judge

    def submit(self, problem: Problem, completion: Completion) -> Future[Judgement]:
        """See `Rewarder.submit`."""
        return self._judge.submit(problem, extract_program(completion.text, completion.finish_reason))


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


def of_difficulties(problems: Iterable[Problem], difficulties: Sequence[Difficulty]) -> Iterator[Problem]:
    """Those of `problems` that have one of the difficulties; all where none is given. Raises InputError where none is left."""
    found: Counter[str] = Counter()
    for problem in problems:
        found[problem.difficulty or "none"] += 1
        if not difficulties or problem.difficulty in difficulties:
            yield problem
    if difficulties and not any(found[difficulty] for difficulty in difficulties):
        have = ", ".join(f"{name} {count}" for name, count in found.most_common())
        raise InputError(f"difficulties: no problem has difficulty {' or '.join(difficulties)}; there are: {have or 'no problems'}")


def make_tasks(problems: Iterable[Problem], loaded: LoadedModel, max_new_tokens: int) -> list[Task]:
    """Each problem with the tokens of its prompt.

    Raises:
        InputError: Two problems of one id, or a prompt that leaves no room for `max_new_tokens`.
    """
    template, tokenizer = loaded.prompt_template, loaded.tokenizer
    tasks = {}
    for problem in problems:
        if problem.problem_id in tasks:
            raise InputError(
                f"problem_id: must differ from problem to problem, got {problem.problem_id!r} twice; `data curate` drops repeats"
            )
        prompt_ids = tuple(template.token_ids(template.render_text(problem), tokenizer))
        loaded.check_room(len(prompt_ids), max_new_tokens, f"problem {problem.problem_id}")
        tasks[problem.problem_id] = Task(problem, prompt_ids)
    return list(tasks.values())


@contextlib.contextmanager
def open_sampler(config: SamplerConfig, loaded: LoadedModel) -> Iterator[TrainedSampler]:
    """A sampler of the configured kind for `loaded`, in its compute dtype; what it started ends with the block.

    Raises:
        InputError: A kind that cannot work here; says what to do.
        SamplingError: An engine or a server that does not answer.
    """
    if config.kind == "vllm":
        from microcoder_core.sampling.vllm_sampler import open_vllm_sampler

        with open_vllm_sampler(config, loaded) as in_process:
            yield in_process
    elif config.kind == "vllm_server":
        from microcoder_core.sampling.vllm_server import VllmServerSampler

        ends = end_token_ids(loaded.model, loaded.tokenizer)
        with VllmServerSampler(
            config, loaded.tokenizer, end_tokens=ends, vocabulary=loaded.model.config.get_text_config().vocab_size
        ) as client:
            yield client
    else:
        yield TransformersSampler(loaded.model, loaded.tokenizer, max_rows=config.max_rows, compute_dtype=loaded.compute_dtype)
