"""The MicroCoder paper's studies on the nano model: truncation mask, temperature, KL and clip range, batch ratio.

Each arm differs from its study's first in what its name says, trains on the curated drills through the pipeline's own stages, and is
scored on held-out drills. Arms that the result file has already are not run again.

    python benchmarks/ablations.py mask --seeds 0,1 --out benchmarks/ablations.json
"""

from __future__ import annotations

import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import matplotlib
from matplotlib import pyplot

from benchmarks.nano_gain import load_pipeline_settings, prepare
from microcoder_core.config import load_config
from microcoder_core.grpo.weights import plain_model
from microcoder_core.judge.judge import open_judge
from microcoder_core.nano import NANO_MODEL
from microcoder_core.sampling.models import load_model, set_torch_threads
from microcoder_core.stages.evaluate import EvaluateConfig, evaluate
from microcoder_core.stages.presets import load_train_config
from microcoder_core.stages.rollout_parts import JudgeRewarder, open_sampler
from microcoder_core.stages.train import TrainStageConfig, run_trainer, save_model
from microcoder_core.tracking import NullTracker

STEPS = 40
COMMON = (f"max_steps={STEPS}", "torch_threads=1", "rollout.temperature_from_probe=false", "health.on_collapse=warn")
CURVES = (
    *("reward", "microcoder/diversity", "completions/mean_length", "completions/clipped_ratio", "entropy", "microcoder/masked_frac"),
    *("clip_ratio/low_mean", "clip_ratio/high_mean", "kl"),
)
PANELS: Mapping[str, str] = {
    "reward": "reward",
    "microcoder/diversity": "diversity (pooled distinct-4)",
    "completions/mean_length": "mean length, tokens",
    "completions/clipped_ratio": "share cut off",
}

_SHORT = ("rollout.max_new_tokens=40",)
"""So short that many completions are cut off; see the result."""
_FOUR_UPDATES = ("optimizer.mini_batch_size=2",)
"""Four updates a rollout, so that ratios leave 1 and can be clipped."""
STUDIES: Mapping[str, Mapping[str, Sequence[str]]] = {
    "mask": {
        "none": (*_SHORT, "mask.kind=none"),
        "all": (*_SHORT, "mask.kind=all"),
        "10 %": (*_SHORT, "mask.rho=0.1"),
        "20 %": (*_SHORT, "mask.rho=0.2"),
        "30 %": (*_SHORT, "mask.rho=0.3"),
    },
    "temperature": {
        "1.2": ("rollout.temperature_stages=[[0, 1.2]]",),
        "0.6": ("rollout.temperature_stages=[[0, 0.6]]",),
        "1.8": ("rollout.temperature_stages=[[0, 1.8]]",),
        "0.6, 1.2 from step 20": ("rollout.temperature_stages=[[0, 0.6], [20, 1.2]]",),
    },
    "kl_clip": {
        "no KL, clip 0.28": (*_FOUR_UPDATES, "loss.kl_coef=0", "loss.clip_high=0.28"),
        "no KL, clip 0.2": (*_FOUR_UPDATES, "loss.kl_coef=0", "loss.clip_high=0.2"),
        "KL 0.04, clip 0.28": (*_FOUR_UPDATES, "loss.kl_coef=0.04", "loss.clip_high=0.28"),
        "KL 0.04, clip 0.2": (*_FOUR_UPDATES, "loss.kl_coef=0.04", "loss.clip_high=0.2"),
    },
    "batch": {
        "8 : 8": ("rollout.train_batch_size=8", "optimizer.mini_batch_size=8"),
        "16 : 8": ("rollout.train_batch_size=16", "optimizer.mini_batch_size=8", f"max_steps={STEPS // 2}"),
        "32 : 8": ("rollout.train_batch_size=32", "optimizer.mini_batch_size=8", f"max_steps={STEPS // 4}"),
    },
}
"""Study -> arm -> settings. The arms of `batch` see as many completions and do as many updates as each other."""


def settings(study: str, arm: str, seed: int) -> TrainStageConfig:
    """The configuration of one run."""
    return load_train_config(["microcoder", "nano"], [*COMMON, f"seed={seed}", *STUDIES[study][arm]])


def run(study: str, arm: str, seed: int, problems: Path, held_out: Path, folder: Path) -> dict[str, Any]:
    """Trains once; what came of it."""
    config = settings(study, arm, seed)
    started = time.monotonic()
    set_torch_threads(config.torch_threads)
    loaded = load_model(str(NANO_MODEL), config.dtype, trainable=True)
    with open_judge(config.judge) as judge, open_sampler(config.sampler, loaded) as sampler:
        trainer = run_trainer(config, loaded, problems, sampler, JudgeRewarder(judge), NullTracker(), None)
    seconds = time.monotonic() - started
    model = folder / "model"
    model.mkdir(parents=True)
    save_model(model, plain_model(loaded.model, loaded.stored_dtype), loaded)
    return {
        "study": study,
        "arm": arm,
        "seed": seed,
        "pass_at_k": score(model, held_out, folder / "evaluation"),
        "seconds": round(seconds),
        "curves": {name: [round(step[name], 4) if name in step else None for step in trainer.history] for name in CURVES},
    }


def score(model: Path, held_out: Path, out: Path) -> dict[str, float]:
    """pass@k on the held-out drills, as the pipeline measures it."""
    config = load_config(EvaluateConfig, overrides=load_pipeline_settings()["eval_overrides"])
    result = evaluate(config, model=str(model), problems=held_out, out=out, tracker=NullTracker())
    return {str(k): round(value, 4) for k, value in result.pass_at_k.items()}


def draw(study: str, rows: Sequence[Mapping[str, Any]], file: Path) -> None:
    """Small multiples of a study's curves: seeds thin, their mean thick."""
    matplotlib.rcParams.update({"svg.hashsalt": "microcoder", "font.size": 9})
    figure, axes = pyplot.subplots(1, len(PANELS), figsize=(15, 3.4), layout="constrained")
    for panel, (metric, label) in zip(axes, PANELS.items(), strict=True):
        for number, arm in enumerate(STUDIES[study]):
            curves = [row["curves"][metric] for row in rows if (row["study"], row["arm"]) == (study, arm)]
            steps = [place * (STEPS / len(curves[0])) for place in range(1, len(curves[0]) + 1)] if curves else []
            for curve in curves:
                panel.plot(steps, smoothed(curve), color=f"C{number}", linewidth=0.6, alpha=0.6)
            if curves:
                mean = [statistics.fmean(step) for step in zip(*(smoothed(curve) for curve in curves), strict=True)]
                panel.plot(steps, mean, color=f"C{number}", linewidth=2, label=arm)
        panel.set_xlabel("batches of 8 problems")
        panel.set_title(label, fontsize=10)
        panel.spines[["top", "right"]].set_visible(False)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center", frameon=False)
    file.parent.mkdir(exist_ok=True)
    figure.savefig(file, metadata={"Date": None})
    pyplot.close(figure)


def smoothed(curve: Sequence[float], weight: float = 0.3) -> list[float]:
    """The exponential mean of a curve."""
    return list(itertools.accumulate(curve, lambda mean, value: mean + weight * (value - mean)))


def table(study: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """The arms of a study as a Markdown table: mean over seeds and, in brackets, least and most; curves over their last quarter."""
    heads = ("arm", "seeds", "pass@1", "pass@10", "reward", "diversity", "length, tokens", "cut off, first and last")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for arm in STUDIES[study]:
        own = [row for row in rows if (row["study"], row["arm"]) == (study, arm)]
        if own:
            tails = {name: [last(row, name) for row in own] for name in PANELS}
            cut = statistics.fmean(row["curves"]["completions/clipped_ratio"][0] for row in own)
            cells = [spread([row["pass_at_k"][k] for row in own], 3) for k in ("1", "10")]
            cells += [spread(tails["reward"], 3), spread(tails["microcoder/diversity"], 3), spread(tails["completions/mean_length"], 1)]
            lines.append(
                f"| {arm} | {len(own)} | {' | '.join(cells)} | {cut:.2f}, {statistics.fmean(tails['completions/clipped_ratio']):.2f} |"
            )
    return "\n".join(lines)


def last(row: Mapping[str, Any], metric: str) -> float:
    """Mean of a metric over the last quarter of the steps."""
    values = [value for value in row["curves"][metric] if value is not None]
    return statistics.fmean(values[-max(1, len(values) // 4) :])


def spread(values: Sequence[float], digits: int) -> str:
    """`mean (least - most)`."""
    return f"{statistics.fmean(values):.{digits}f} ({min(values):.{digits}f} - {max(values):.{digits}f})"


@click.command()
@click.argument("studies", nargs=-1, type=click.Choice(list(STUDIES)))
@click.option("--seeds", default="0,1", show_default=True)
@click.option("--out", default="benchmarks/ablations.json", show_default=True, type=click.Path(path_type=Path))
def main(studies: tuple[str, ...], seeds: str, out: Path) -> None:
    """Runs studies (all where none is named), adds what came of them to OUT, draws the figures and prints the tables."""
    rows: list[dict[str, Any]] = json.loads(out.read_text()) if out.is_file() else []
    done = {(row["study"], row["arm"], row["seed"]) for row in rows}
    wanted = [(study, arm, int(seed)) for seed in seeds.split(",") for study in studies or STUDIES for arm in STUDIES[study]]
    with tempfile.TemporaryDirectory() as scratch:
        problems, held_out = prepare(Path(scratch))
        for number, (study, arm, seed) in enumerate(one for one in wanted if one not in done):
            row = run(study, arm, seed, problems, held_out, Path(scratch) / str(number))
            click.echo(f"{study} / {arm} / seed {seed}: pass@k {row['pass_at_k']}, {row['seconds']} s", err=True)
            rows.append(row)
            out.write_text(json.dumps(rows, separators=(",", ":")).replace('{"study"', '\n{"study"') + "\n")
    for study in studies or STUDIES:
        draw(study, rows, out.parent / "figures" / f"ablation_{study}.svg")
        click.echo(f"\n{study}\n\n{table(study, rows)}")


if __name__ == "__main__":
    main()
