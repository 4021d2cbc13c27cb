"""A training step of ours against one of TRL's: same model, prompts, group size, lengths and rewards, each in processes of their own.

Lengths are planned: a completion ends where the plan says, whatever the model would have written, so that both write the same numbers
of tokens. Rewards are planned too, and cost nothing. TRL's gradient checkpointing and bfloat16 are off. Then each of our measures is
switched off alone.

    python benchmarks/trainer_bench.py --out benchmarks/trainer_bench.json
"""

from __future__ import annotations

import json
import math
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import torch

PROBLEMS, GROUP_SIZE, LIMIT = 16, 8, 256
ZERO_SHARE = 0.375
"""Share of problems whose completions are all right or all wrong."""
SETS = ("skewed", "uniform")
VOCABULARIES = {"nano": 512, "32k": 32_768}
STEPS = {"nano": 5, "32k": 3}
WARM_UP_STEPS = 1
ROUNDS = {"nano": 2, "32k": 1}
TRL_MICRO_BATCH = 32
"""Rows. On the skewed set a step of TRL's took 11.6 s with 16, 10.8 s with 32 and 10.6 s with 128, with 0.5, 0.9 and 2.6 GiB."""


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
    if vocabulary == "nano":
        return loaded
    from transformers import AutoModelForCausalLM

    loaded.model.config.vocab_size = VOCABULARIES[vocabulary]
    torch.manual_seed(0)
    return replace(loaded, model=AutoModelForCausalLM.from_config(loaded.model.config, dtype=torch.float32))


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
            "memory_check=false",
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


def trl(plan: Plan, vocabulary: str, steps: int, times: Timed) -> Callable[[], None]:
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
        per_device_train_batch_size=TRL_MICRO_BATCH,
        gradient_accumulation_steps=rows // TRL_MICRO_BATCH,
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


def without_shared_prompts() -> None:
    """Each completion has a row of its own."""
    from microcoder_core.grpo import batching, update

    update.plan_micro_batches = lambda sequences, max_tokens, _: batching.plan_micro_batches(sequences, max_tokens, 0)


def without_skipping() -> None:
    """Completions without advantage are run through the model too."""
    from microcoder_core.grpo.update import Updater

    Updater._active = lambda self, sequences: list(sequences)


def without_sorting() -> None:
    """Micro-batches in the order of the rollout, each padded to the longest row of all; rows are not shared, since that sorts too."""
    from microcoder_core.grpo import batching, update

    def plan(sequences: Sequence[Any], max_tokens: int, _: int) -> list[list[batching.Row]]:
        rows = [batching.Row(one.prompt_ids, (one,)) for one in sequences]
        size = max(1, max_tokens // max(row.length for row in rows))
        longest = max(rows, key=lambda row: row.length)
        weightless = batching.Row(longest.prompt_ids, tuple(replace(one, weight=0.0, advantage=0.0) for one in longest.sequences))
        return [[*rows[first : first + size - 1], weightless] for first in range(0, len(rows), size - 1)]

    update.plan_micro_batches = plan


def without_a_lean_head() -> None:
    """Logits of all positions, all held until the backward pass."""
    from microcoder_core.grpo import update

    def backward(model: Any, batch: Any, objective: Callable[..., torch.Tensor], dtype: torch.dtype) -> None:
        logits = model(
            input_ids=batch.input_ids, position_ids=batch.position_ids, attention_mask=batch.attention_mask, use_cache=False
        ).logits.flatten(0, 1)
        tokens = batch.tokens
        following = torch.zeros(len(logits), dtype=torch.long)
        following[tokens.source] = tokens.targets  # of sources that completions share the last one's: for the time alone
        temperatures = torch.ones(len(logits))
        temperatures[tokens.source] = tokens.temperatures
        logprobs = -torch.nn.functional.cross_entropy(logits / temperatures[:, None], following, reduction="none")
        objective(logprobs[tokens.source], tokens).backward()

    update.backward = backward


def without_leaving_rows() -> None:
    """Finished completions stay in the batch until the last one ends, and each has its own prefill."""
    from microcoder_core.sampling import transformers_sampler

    transformers_sampler._COMPACT_WHEN_FINISHED = 2.0
    prefill = transformers_sampler.TransformersSampler._prefill
    transformers_sampler.TransformersSampler._prefill = lambda self, prompts, group_size: prefill(
        self, [prompt for prompt in prompts for _ in range(group_size)], 1
    )


MEASURES = {
    "completions of a prompt share its forward pass": without_shared_prompts,
    "completions without advantage are skipped": without_skipping,
    "sorted and trimmed micro-batches (and shared rows)": without_sorting,
    "head on completion tokens, in parts": without_a_lean_head,
    "finished rows leave the batch, one prefill a prompt": without_leaving_rows,
}
"""Measure -> what switches it off."""


def measure(arm: str, plan: Plan, vocabulary: str, threads: int, without: str) -> dict[str, Any]:
    """Seconds a step and an update (medians), and MiB of memory above what the loaded trainer has."""
    torch.set_num_threads(threads)
    times = Timed([], [])
    steps = STEPS[vocabulary]
    run = ours(plan, vocabulary, steps, times) if arm == "ours" else trl(plan, vocabulary, steps, times)
    if without:
        MEASURES[without]()
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
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


def in_process(threads: int, **options: Any) -> dict[str, float]:
    """`measure` in a process of its own."""
    command = [sys.executable, "-W", "ignore", __file__, "--measure", json.dumps(options), "--threads", str(threads)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise click.ClickException(f"{options}: {ran.stderr[-2000:]}")
    result: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
    click.echo(f"{options}: {result}", err=True)
    return result


def compare(kind: str, vocabulary: str, threads: int, zero_share: float = ZERO_SHARE) -> dict[str, Any]:
    """Both, in turn; ratios of the medians over rounds."""
    options = {"kind": kind, "vocabulary": vocabulary, "zero_share": zero_share}
    runs: dict[str, list[dict[str, float]]] = {"ours": [], "trl": []}
    for _ in range(ROUNDS[vocabulary]):
        for arm, results in runs.items():
            results.append(in_process(threads, arm=arm, **options))
    medians = {arm: {name: statistics.median(one[name] for one in results) for name in results[0]} for arm, results in runs.items()}
    mine, theirs = medians["ours"], medians["trl"]
    return {
        "update_ratio": round(theirs["update_s"] / mine["update_s"], 2),
        "step_ratio": round(theirs["step_s"] / mine["step_s"], 2),
        "memory_ratio": round(mine["memory_mib"] / theirs["memory_mib"], 2),
        "runs": runs,
    }


def one_by_one(vocabulary: str, threads: int) -> dict[str, dict[str, float]]:
    """What a step, an update and memory are without each measure, as a multiple of those with all."""
    base = in_process(threads, arm="ours", kind="skewed", vocabulary=vocabulary)
    gains = {}
    for name in MEASURES:
        without = in_process(threads, arm="ours", kind="skewed", vocabulary=vocabulary, without=name)
        gains[name] = {key.partition("_")[0]: round(without[key] / base[key], 2) for key in base}
    return gains


@click.command()
@click.option("--out", type=click.Path(path_type=Path), help="JSON file for all numbers.")
@click.option("--threads", default=1, show_default=True, help="Of torch; with two, another busy process makes both many times slower.")
@click.option("--measure", "measured", hidden=True)
def main(out: Path | None, threads: int, measured: str | None) -> None:
    """Times both; the last line is the ratios as JSON."""
    if measured:
        options = {"without": "", "zero_share": ZERO_SHARE} | json.loads(measured)
        plan = Plan(options.pop("kind"), options.pop("zero_share"))
        click.echo(json.dumps(measure(plan=plan, threads=threads, **options)))
        return
    results: dict[str, Any] = {}
    for vocabulary in VOCABULARIES:
        for kind in SETS:
            results[kind if vocabulary == "nano" else f"{kind}_{vocabulary}"] = compare(kind, vocabulary, threads)
    results["skewed_every_group_mixed"] = compare("skewed", "nano", threads, zero_share=0.0)
    record = {
        "machine": f"{platform.machine()}, {threads} threads",
        "versions": {name: version(name) for name in ("microcoder", "torch", "transformers", "trl")},
        "zero_advantage_share": ZERO_SHARE,
        "results": results,
        "without_each": {vocabulary: one_by_one(vocabulary, threads) for vocabulary in VOCABULARIES},
    }
    if out:
        out.write_text(json.dumps(record, indent=1) + "\n")
    click.echo(json.dumps({name: {key: value for key, value in one.items() if key != "runs"} for name, one in results.items()}))


if __name__ == "__main__":
    main()
