"""What training gains on the nano model: pass@1 on held-out drills before and after, over seeds, with a control.

Each arm goes through the pipeline's own stages and settings: curate, probe, train at the probed temperature, evaluate.

The control trains on the same completions with shuffled rewards: each completion gets the verdict of an earlier one drawn at random,
so that the share of rewards is right and their place is not. What it gains is what the harness gains without learning.

    python benchmarks/nano_gain.py --seeds 0,1,2 --out benchmarks/nano_gain.json
"""

from __future__ import annotations

import json
import logging
import platform
import random
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import click
import torch
import transformers

from microcoder_core import __version__
from microcoder_core.config import load_config
from microcoder_core.grpo.weights import plain_model
from microcoder_core.judge.judge import Judge
from microcoder_core.nano import NANO_MODEL
from microcoder_core.records import Completion, Judgement, Problem
from microcoder_core.sampling.models import load_model, set_torch_threads
from microcoder_core.stages.curate import CurateConfig, curate
from microcoder_core.stages.evaluate import EvaluateConfig, evaluate
from microcoder_core.stages.import_problems import ImportConfig, import_problems
from microcoder_core.stages.presets import load_probe_config, load_train_config
from microcoder_core.stages.probe import probe
from microcoder_core.stages.results import EvaluationResult
from microcoder_core.stages.rollout_parts import JudgeRewarder, open_sampler
from microcoder_core.stages.train import TrainStageConfig, run_trainer, save_model, with_probed_temperature
from microcoder_core.tracking import NullTracker

ARMS: Mapping[str, tuple[list[str], bool]] = {
    "microcoder": (["microcoder", "nano"], False),
    "dapo": (["dapo", "nano"], False),
    "grpo": (["grpo", "nano"], False),
    "control (shuffled rewards)": (["microcoder", "nano"], True),
}
"""Arm -> presets, whether rewards are shuffled."""


class ShuffledRewarder:
    """Gives each completion the verdict of an earlier completion, drawn at random."""

    def __init__(self, rewarder: JudgeRewarder, seed: int) -> None:
        self._rewarder = rewarder
        self._random = random.Random(seed)
        self._pool: list[Future[Judgement]] = []

    def submit(self, problem: Problem, completion: Completion) -> Future[Judgement]:
        """See `Rewarder.submit`."""
        own = self._rewarder.submit(problem, completion)
        drawn = self._random.choice(self._pool[-256:] or [own])  # the very first has none before it
        self._pool.append(own)
        return drawn


def prepare(folder: Path) -> tuple[Path, Path]:
    """Curated training drills and held-out drills, as the pipeline makes them."""
    settings = load_pipeline_settings()
    for split in ("train", "held_out"):
        import_problems(ImportConfig(format="drills"), source=split, out=folder / split, tracker=NullTracker())
    config = load_config(CurateConfig, overrides=settings["data_overrides"])
    curate(config, problems=folder / "train", exclude=[folder / "held_out"], out=folder / "curated", tracker=NullTracker())
    return folder / "curated", folder / "held_out"


def load_pipeline_settings() -> dict[str, Any]:
    """The pipeline's parameters for the nano model."""
    import configs
    from microcoder_core.config import read_yaml_mapping

    return {"data_overrides": []} | read_yaml_mapping(Path(configs.__file__).parent / "pipelines" / "nano.yaml")


def score(model: Path, problems: Path, out: Path) -> EvaluationResult:
    """pass@k as the pipeline measures it."""
    config = load_config(EvaluateConfig, overrides=load_pipeline_settings()["eval_overrides"])
    return evaluate(config, model=str(model), problems=problems, out=out, tracker=NullTracker())


def probed(presets: Sequence[str], seed: int, problems: Path, out: Path) -> Path:
    """The probe that the pipeline runs before training, made once."""
    if not out.exists():
        config = load_probe_config(presets, [f"train.seed={seed}", *load_pipeline_settings()["probe_overrides"]])
        probe(config, model="nano", problems=problems, out=out, tracker=NullTracker())
    return out


def run(config: TrainStageConfig, problems: Path, held_out: Path, folder: Path, *, shuffled: bool) -> EvaluationResult:
    """Trains once and scores the result."""
    set_torch_threads(config.torch_threads)
    loaded = load_model(str(NANO_MODEL), config.dtype, trainable=True)
    with Judge(config.judge) as judge, open_sampler(config.sampler, loaded) as sampler:
        judged = JudgeRewarder(judge)
        rewarder = ShuffledRewarder(judged, config.seed) if shuffled else judged
        run_trainer(config, loaded, problems, sampler, rewarder, NullTracker(), None)
    model = folder / "model"
    model.mkdir(parents=True)
    save_model(model, plain_model(loaded.model, loaded.stored_dtype), loaded)
    return score(model, held_out, folder / "evaluation")


def row(arm: str, seed: int | None, result: EvaluationResult) -> dict[str, Any]:
    """One line of the result file."""
    return {
        "arm": arm,
        "seed": seed,
        "pass_at_k": {k: round(value, 4) for k, value in result.pass_at_k.items()},
        "diversity": round(result.diversity, 4),
        "distinct_programs_frac": round(result.distinct_programs_frac, 4),
        "mean_length": round(result.mean_length, 2),
        "truncated_frac": round(result.truncated_frac, 4),
    }


@click.command()
@click.option("--seeds", default="0,1,2", show_default=True)
@click.option("--arms", default="microcoder,control (shuffled rewards)", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), required=True)
@click.argument("overrides", nargs=-1)
def main(seeds: str, arms: str, out: Path, overrides: tuple[str, ...]) -> None:
    """Runs the arms over the seeds and writes the numbers."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        problems, held_out = prepare(folder)
        base = score(NANO_MODEL, held_out, folder / "base")
        rows.append(row("base", None, base))
        print(rows[-1], flush=True)
        for arm in arms.split(","):
            presets, shuffled = ARMS[arm]
            for seed in map(int, seeds.split(",")):
                measured = probed(presets, seed, problems, folder / f"probe-{'-'.join(presets)}-{seed}")
                config = with_probed_temperature(load_train_config(presets, [f"seed={seed}", *overrides]), measured)
                result = run(config, problems, held_out, folder / f"{arm}-{seed}", shuffled=shuffled)
                gain = {"gain": round(result.pass_at_k["1"] - base.pass_at_k["1"], 4)}
                rows.append(row(arm, seed, result) | gain | {"temperature": config.rollout.temperature_stages[0][1]})
                print(rows[-1], flush=True)
    gains = {arm: statistics.median(one["gain"] for one in rows if one["arm"] == arm) for arm in arms.split(",")}
    versions = {"microcoder": __version__, "torch": torch.__version__, "transformers": transformers.__version__}
    machine = {"machine": platform.machine(), "torch_threads": torch.get_num_threads(), **versions}
    out.write_text(json.dumps({"median_gain": gains, "overrides": overrides, "environment": machine, "rows": rows}, indent=1) + "\n")
    print(json.dumps({"median_gain": gains}))


if __name__ == "__main__":
    main()
