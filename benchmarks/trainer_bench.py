"""A training step of ours against one of TRL's: same model, prompts, group size, lengths and rewards, each in processes of their own.

Lengths are planned: a completion ends where the plan says, whatever the model would have written, so that both write the same numbers
of tokens. Rewards are planned too, and cost nothing. TRL's gradient checkpointing and bfloat16 are off.

    python benchmarks/trainer_bench.py --out benchmarks/trainer_bench.json
"""

from __future__ import annotations

import json
import math
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import torch

PROBLEMS, GROUP_SIZE, LIMIT = 16, 8, 256
SETS = ("skewed", "uniform")
VOCABULARIES = {"nano": 512, "32k": 32_768}
WARM_UP_STEPS = 2
import os

OVERRIDES = os.environ.get("OV", "").split()
TRL_MICRO_BATCHES = (16, 32, 128)
"""Rows a micro-batch that TRL is tried with; the fastest counts."""


@dataclass(frozen=True)
class Plan:
    """How long each completion becomes and what it earns, by problem and sample."""

    kind: str
    zero_share: float
    """Share of problems whose rewards are all equal."""

    def length(self, step: int, problem: int, sample: int) -> int:
        """Tokens, the end token included."""
        if self.kind == "uniform":
            return 64
        draw = random.Random(f"{step} {problem} {sample}")
        return min(LIMIT, max(4, round(draw.lognormvariate(math.log(28), 0.9))))

    def reward(self, problem: int, sample: int) -> float:
        """1 or 0; half of a mixed group is right."""
        if problem < self.zero_share * PROBLEMS:
            return float(problem % 2)
        return float(sample % 2)


def build_model(vocabulary: str) -> Any:
    """The nano model, or one of its shape with a larger vocabulary."""
    from microcoder_core.nano import NANO_MODEL
    from microcoder_core.sampling.models import load_model

    loaded = load_model(str(NANO_MODEL), trainable=True)
    if vocabulary != "nano":
        from transformers import AutoModelForCausalLM

        loaded.model.config.vocab_size = VOCABULARIES[vocabulary]
        torch.manual_seed(0)
        object.__setattr__(loaded, "model", AutoModelForCausalLM.from_config(loaded.model.config, dtype=torch.float32))
    return loaded


def drills() -> list[Any]:
    """The problems of a step."""
    from microcoder_core.data.drills import drill_problems

    return list(drill_problems("train"))[:PROBLEMS]


@dataclass
class Timed:
    """Seconds of each step and of its sampling."""

    steps: list[float]
    sampling: list[float]

    def timing(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, its time counted as sampling."""

        def timed(*arguments: Any, **keywords: Any) -> Any:
            started = time.perf_counter()
            try:
                return function(*arguments, **keywords)
            finally:
                self.sampling.append(time.perf_counter() - started)

        return timed


def ours(plan: Plan, vocabulary: str, steps: int, times: Timed) -> Callable[[], None]:
    """A run of so many steps of our trainer, ready to start."""
    from microcoder_core.grpo import trainer as trainer_module
    from microcoder_core.grpo.trainer import Trainer
    from microcoder_core.records import Completion, Judgement, Problem, Verdict
    from microcoder_core.sampling.transformers_sampler import TransformersSampler
    from microcoder_core.stages.presets import load_train_config
    from microcoder_core.stages.rollout_parts import DiversityWatcher, make_tasks

    class Planned(TransformersSampler):
        calls = -1

        def sample(self, *arguments: Any, **keywords: Any) -> Any:
            Planned.calls += 1
            return super().sample(*arguments, **keywords)

        def _next_tokens(self, logits: torch.Tensor, temperature: float, live: Any) -> Any:
            ends = [len(row.token_ids) + 1 >= plan.length(Planned.calls, row.prompt, row.sample) for row in live]
            return super()._next_tokens(end_where(logits, ends, loaded.tokenizer.eos_token_id), temperature, live)

    class Rewarder:
        seen: dict[tuple[int, str], int] = {}

        def submit(self, problem: Problem, completion: Completion) -> Future[Judgement]:
            key = (Planned.calls, problem.problem_id)
            sample = self.seen[key] = self.seen.get(key, -1) + 1
            right = plan.reward(order[problem.problem_id], sample)
            future: Future[Judgement] = Future()
            future.set_result(Judgement(problem_id=problem.problem_id, verdict=Verdict.ACCEPTED if right else Verdict.WRONG_ANSWER))
            return future

    loaded = build_model(vocabulary)
    problems = drills()
    order = {problem.problem_id: number for number, problem in enumerate(problems)}
    config = load_train_config(
        ["microcoder", "nano"],
        [
            f"max_steps={steps}",
            f"rollout.train_batch_size={PROBLEMS}",
            f"optimizer.mini_batch_size={PROBLEMS}",
            f"rollout.group_size={GROUP_SIZE}",
            f"rollout.max_new_tokens={LIMIT}",
            *OVERRIDES,
        ],
    )
    one = Trainer(
        config,
        model=loaded.model,
        pad_id=loaded.tokenizer.pad_token_id,
        tasks=make_tasks(problems, loaded, LIMIT),
        sampler=Planned(loaded.model, loaded.tokenizer),
        rewarder=Rewarder(),
        watchers=(DiversityWatcher(),),
    )
    trainer_module.collect_rollout = times.timing(trainer_module.collect_rollout)
    step = one._step

    def timed_step() -> Any:
        started = time.perf_counter()
        metrics = step()
        times.steps.append(time.perf_counter() - started)
        return metrics

    one._step = timed_step  # type: ignore[method-assign]
    return one.train


def end_where(logits: torch.Tensor, ends: Sequence[bool], end_token: int) -> torch.Tensor:
    """`logits` `[B, V]` that leave the end token alone possible in rows that end, and impossible in the others."""
    is_end = torch.zeros(logits.shape[1], dtype=torch.bool)
    is_end[end_token] = True
    return logits.masked_fill(is_end != torch.tensor(ends)[:, None], -1e9)


def trl(plan: Plan, vocabulary: str, steps: int, times: Timed, micro_batch: int) -> Callable[[], None]:
    """A run of so many steps of TRL's trainer, ready to start."""
    import transformers
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    loaded = build_model(vocabulary)
    calls = [-1]

    class Ending(transformers.LogitsProcessor):
        def __init__(self) -> None:
            self.position = 0

        def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            self.position += 1
            ends = [self.position >= plan.length(calls[0], *divmod(row, GROUP_SIZE)) for row in range(len(scores))]
            return end_where(scores, ends, loaded.tokenizer.eos_token_id)

    generate = loaded.model.generate

    def planned_generate(*arguments: Any, **keywords: Any) -> Any:
        calls[0] += 1
        return generate(*arguments, logits_processor=transformers.LogitsProcessorList([Ending()]), **keywords)

    loaded.model.generate = planned_generate
    template = loaded.prompt_template
    rows = PROBLEMS * GROUP_SIZE

    def rewards(completions: Sequence[str], **_: Any) -> list[float]:
        return [plan.reward(*divmod(row, GROUP_SIZE)) for row in range(len(completions))]

    class Clock(transformers.TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.started = time.perf_counter()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            times.steps.append(time.perf_counter() - self.started)

    arguments = GRPOConfig(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=micro_batch,
        gradient_accumulation_steps=rows // micro_batch,
        num_generations=GROUP_SIZE,
        max_completion_length=LIMIT,
        max_steps=steps,
        loss_type="dapo",
        epsilon_high=0.28,
        beta=0.0,
        temperature=1.2,
        top_k=0,
        learning_rate=1e-4,
        lr_scheduler_type="constant",
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=True,
        report_to="none",
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        shuffle_dataset=False,
        dataloader_num_workers=0,
    )
    one = GRPOTrainer(
        model=loaded.model,
        reward_funcs=rewards,
        args=arguments,
        train_dataset=Dataset.from_list([{"prompt": template.render_text(problem)} for problem in drills()]),
        processing_class=loaded.tokenizer,
        callbacks=[Clock()],
    )
    one._generate_and_score_completions = times.timing(one._generate_and_score_completions)
    return lambda: one.train() and None


def measure(arm: str, plan: Plan, vocabulary: str, steps: int, threads: int, micro_batch: int) -> dict[str, Any]:
    """Seconds a step and an update (medians), and MiB of memory above what the loaded trainer has."""
    torch.set_num_threads(threads)
    times = Timed([], [])
    run = ours(plan, vocabulary, steps, times) if arm == "ours" else trl(plan, vocabulary, steps, times, micro_batch)
    Path("/proc/self/clear_refs").write_text("5")
    before = status_mib("VmRSS")
    run()
    updates = [whole - sampling for whole, sampling in zip(times.steps, times.sampling, strict=True)]
    return {
        "step_s": statistics.median(times.steps[WARM_UP_STEPS:]),
        "update_s": statistics.median(updates[WARM_UP_STEPS:]),
        "memory_mib": status_mib("VmHWM") - before,
    }


def status_mib(name: str) -> float:
    """A size out of /proc/self/status."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) / 1024


@click.command()
@click.option("--arm")
@click.option("--kind", default="skewed")
@click.option("--vocabulary", default="nano")
@click.option("--steps", default=8)
@click.option("--threads", default=2)
@click.option("--zero-share", default=0.375)
@click.option("--micro-batch", default=32)
def main(arm: str, kind: str, vocabulary: str, steps: int, threads: int, zero_share: float, micro_batch: int) -> None:
    """Times both."""
    print(json.dumps(measure(arm, Plan(kind, zero_share), vocabulary, steps, threads, micro_batch)))


if __name__ == "__main__":
    main()
