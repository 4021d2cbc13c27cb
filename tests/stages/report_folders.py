"""Output folders of a made-up run, as the stages leave them: what the report reads."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

from microcoder_core.records import Dropped, Problem, TestCase, Verdict
from microcoder_core.stages.model_source import model_sha256
from microcoder_core.stages.results import (
    EvaluationResult,
    GridPoint,
    Pilot,
    ProbeResult,
    ProblemScore,
    PromotionResult,
    ScoreTable,
    TrainResult,
)
from microcoder_core.storage.datasets import DatasetWriter, LineageStep
from microcoder_core.storage.stage_output import StageRecord, write_stage_record

HOSTILE = '</pre></script><script>document.title="owned"</script><img src=x onerror=alert(1)> & $x$ \x00\x1b[31m \u202eevil\u202c \ud800'
STEPS = 60


def make_run(root: Path) -> dict[str, Path]:
    """The folders of a whole run, as the keyword arguments of `report`."""
    return {
        "curated": make_curated(root / "curated"),
        "probe": make_probe(root / "probe"),
        "trained": make_trained(root / "trained"),
        "base_evaluation": make_evaluation(root / "base", 0.0),
        "trained_evaluation": make_evaluation(root / "after", 1.0),
        "promotion": make_promotion(root / "promotion"),
    }


def make_curated(folder: Path) -> Path:
    step = LineageStep(stage="curate", config_sha256="c0ffee" * 10 + "beef", inputs={"problems": "ab" * 32})
    with DatasetWriter(folder, step, [LineageStep(stage="import", inputs={"source": "cd" * 32}, dropped={"no_tests": 4})]) as writer:
        for number in range(40):
            writer.add(_problem(number))
        for reason, count in {"duplicate": 7, "near_duplicate": 5, "too_easy": 11, "statement_too_short": 2, "no_tests": 1}.items():
            for number in range(count):
                writer.drop(Dropped(record_id=f"{reason}-{number}", reason=reason))
    return folder


def make_probe(folder: Path) -> Path:
    temperatures = (0.2, 0.6, 0.8, 1.0, 1.2, 1.5, 1.8)
    grid = tuple(
        GridPoint(
            temperature=t,
            diversity=0.95 * (1 - math.exp(-1.3 * t)),
            pairwise_dissimilarity=0.9 * (1 - math.exp(-t)),
            token_entropy=0.12 + 0.7 * t,
            distinct_programs_frac=min(1.0, 0.3 + 0.4 * t),
            pass_at_1=0.62 - 0.14 * t**2,
            mean_length=26 + 6 * t,
            truncated_frac=0.01 * t**3,
        )
        for t in temperatures
    )
    pilots = tuple(
        Pilot(
            temperature=t,
            diversity=tuple(0.95 * (1 - math.exp(-1.3 * t)) * (1 + slope * n) for n in range(5)),
            late_change=2 * slope,
            swing=0.02,
            holds=abs(slope) < 0.02,
        )
        for t, slope in ((0.6, -0.06), (0.8, -0.03), (1.0, 0.004), (1.2, -0.05))
    )
    result = ProbeResult(temperature=1.0, reason="Highest pass@1 among the temperatures whose diversity holds.", grid=grid, pilots=pilots)
    return _finish(folder, "probe", {"grid": list(temperatures), "seed": 0}, {"problems": "ef" * 32, "model": "nano"}, result)


def make_trained(folder: Path, steps: int = STEPS) -> Path:
    result = TrainResult(
        steps=steps,
        samples=steps * 64,
        tokens=steps * 1800,
        stages=((0, 1.0), (40, 1.2)),
        first={"reward": 0.58, "entropy": 0.61, "loss": 0.001},
        last={"reward": 0.86, "entropy": 0.33, "grad_norm": 0.4},
    )
    write_rows(folder / "training" / "metrics.jsonl", [step_metrics(step, steps) for step in range(1, steps + 1)])
    sample = {"step": 1, "problem_id": "p3", "prompt": "Prompt of p3, as trained.", "completion": "x", "verdict": "accepted"}
    write_rows(folder / "training" / "samples.jsonl", [sample])
    config = {"seed": 0, "rollout": {"max_new_tokens": 64, "temperature_stages": [[0, 1.0], [40, 1.2]]}, "loss": {"clip_high": 0.28}}
    return _finish(folder, "train", config, {"problems": "ef" * 32, "model": "nano"}, result)


def step_metrics(step: int, steps: int = STEPS) -> dict[str, Any]:
    random_ = random.Random(step)
    share = step / steps
    reward = 0.57 + 0.3 * (1 - math.exp(-3 * share)) + random_.gauss(0, 0.03)
    wrong, error = (1 - reward) * 0.6, (1 - reward) * 0.3
    metrics: dict[str, Any] = {
        "step": step,
        "reward": reward,
        "frac_reward_zero_std": 0.2 + 0.4 * share + random_.gauss(0, 0.03),
        "completions/mean_length": 28 - 4 * share + random_.gauss(0, 0.8),
        "completions/min_length": 14 + random_.randrange(3),
        "completions/max_length": min(64, 50 + random_.randrange(20)),
        "completions/clipped_ratio": 0.02 + random_.random() * 0.02,
        "entropy": 0.6 - 0.3 * share + random_.gauss(0, 0.02),
        "clip_ratio/low_mean": 0.001 + 0.001 * random_.random(),
        "clip_ratio/high_mean": 0.002 + 0.002 * random_.random(),
        "loss": random_.gauss(0, 0.01),
        "grad_norm": 0.5 + random_.gauss(0, 0.05),
        "learning_rate": 1e-4,
        "tokens_per_s": 2400 + random_.gauss(0, 90),
        "microcoder/pass_at_1": reward,
        "microcoder/diversity": 0.68 - 0.06 * share + (0.04 if step > 40 else 0) + random_.gauss(0, 0.01),
        "microcoder/distinct_programs_frac": 0.7 - 0.1 * share + random_.gauss(0, 0.02),
        "microcoder/temperature": 1.0 if step <= 40 else 1.2,
        "microcoder/mask_eligible_frac": 0.02 * random_.random(),
        "microcoder/masked_frac": 0.004 * random_.random(),
        "microcoder/tail_repeat_frac": 0.0,
        "microcoder/verdict_accepted_frac": reward,
        "microcoder/verdict_wrong_answer_frac": wrong,
        "microcoder/verdict_runtime_error_frac": error,
        "microcoder/verdict_no_program_frac": 1 - reward - wrong - error,
        "microcoder/verdict_judge_error_frac": 0.0,
    }
    if step == 7:
        metrics["entropy"] = math.nan
    return metrics


def make_evaluation(folder: Path, gain: float, **changes: Any) -> Path:
    pass_at_1 = 0.59 + 0.28 * gain
    result = EvaluationResult(
        model="nano",
        problems=150,
        samples=10,
        pass_at_k={"1": pass_at_1, "5": 0.86 + 0.08 * gain, "10": 0.92 + 0.04 * gain},
        by_difficulty={
            name: ScoreTable(problems=50, pass_at_k={"1": pass_at_1 + shift, "5": 0.9 + shift / 3, "10": 0.94 + shift / 3})
            for name, shift in (("hard", -0.14), ("easy", 0.1), ("medium", 0.0))
        },
        verdicts={
            "accepted": pass_at_1,
            "wrong_answer": 0.3 - 0.2 * gain,
            "runtime_error": 0.08 - 0.06 * gain,
            "no_program": 0.03 - 0.02 * gain,
        },
        ungraded=0,
        diversity=0.66 - 0.08 * gain,
        distinct_programs_frac=0.7 - 0.2 * gain,
        mean_length=28.4 - 3.1 * gain,
        truncated_frac=0.021 - 0.015 * gain,
        temperature=1.0,
        max_new_tokens=96,
    )
    solved = 4 if gain else 2
    scores = [ProblemScore(problem_id=f"p{n}", difficulty="easy", samples=10, correct=min(10, n * solved)) for n in range(10)]
    write_rows(folder / "problems.jsonl", [score.model_dump() for score in scores])
    write_rows(folder / "completions.jsonl", completion_rows())
    inputs = {"problems": "12" * 32, "model": "nano" if not gain else "trained"}
    if gain:
        inputs["model_sha256"] = model_sha256(str(folder.parent / "trained"))
    return _finish(folder, "evaluate", {"samples": 10}, inputs, result.model_copy(update=changes))


def completion_rows() -> list[dict[str, Any]]:
    program = "```python\ndef solve(xs):\n    return [x for x in xs if x % 2 == 0]\n```"
    rows = []
    for number, verdict in enumerate((Verdict.ACCEPTED, Verdict.ACCEPTED, Verdict.WRONG_ANSWER, Verdict.RUNTIME_ERROR, Verdict.NO_PROGRAM)):
        for sample in range(2):
            text = HOSTILE if verdict is Verdict.NO_PROGRAM else program
            rows.append(
                {"problem_id": f"p{number}", "sample": sample, "text": text, "verdict": verdict, "detail": "", "finish_reason": "stop"}
            )
            if number != 3:
                rows[-1]["prompt"] = f"Return the even numbers of xs, in order. (p{number})"
    rows[6] |= {"detail": "IndexError on test 2", "finish_reason": "stop"}
    rows[8] |= {"finish_reason": "length"}
    return rows


def make_promotion(folder: Path, promoted: bool = True) -> Path:
    result = PromotionResult(
        promoted=promoted,
        reason="The whole interval of the difference lies above the margin" if promoted else "The interval reaches below the margin",
        base_pass_at_1=0.59,
        trained_pass_at_1=0.87,
        difference=0.28,
        ci_low=0.243,
        ci_high=0.317,
        margin=0.01,
        confidence=0.95,
        model_name="microcoder-nano",
        version="3",
    )
    return _finish(
        folder, "promote", {"margin": 0.01, "confidence": 0.95, "resamples": 10000}, {"base": "34" * 32, "trained": "56" * 32}, result
    )


def write_rows(file: Path, rows: list[dict[str, Any]]) -> None:
    """Writes JSON Lines; ASCII, so that lone surrogates survive."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="ascii")


def _finish(folder: Path, stage: str, config: dict[str, Any], inputs: dict[str, str], result: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    write_stage_record(folder, StageRecord(stage=stage, config=config, inputs=inputs, result=result.model_dump(mode="json")))
    return folder


def _problem(number: int) -> Problem:
    return Problem(problem_id=f"p{number}", statement=f"Problem {number}", form="stdin", tests=(TestCase(input="1\n", expected="1\n"),))
