"""The stage `promote`: registers a trained model as challenger, and makes it champion where it is better by a stated margin."""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import Field

from microcoder_core.config import Config
from microcoder_core.errors import InputError
from microcoder_core.judge.pass_at_k import pass_at_k
from microcoder_core.records import parse_record
from microcoder_core.stages.bootstrap import paired_bootstrap
from microcoder_core.stages.model_source import model_sha256
from microcoder_core.stages.results import EvaluationResult, ProblemScore, PromotionResult
from microcoder_core.storage.atomic import atomic_folder, check_replaceable
from microcoder_core.storage.rows import read_rows
from microcoder_core.storage.stage_output import StageRecord, read_stage_record, read_stage_result, write_stage_record
from microcoder_core.tracking import Tracker
from microcoder_core.tracking.model_record import model_uri

_EVALUATION_TAG = "microcoder.evaluation"
_MODEL_TAG = "microcoder.model_sha256"
_SETTINGS = ("samples", "temperature", "max_new_tokens", "date_from", "date_to")
"""What two evaluations must share, besides the problems, for their scores to be compared."""


class PromoteConfig(Config):
    """When a trained model is better, and under which name it is registered."""

    model_name: Annotated[str, Field(pattern=r"^[^/:'\"]+$")] = "microcoder"
    """Name in the model registry; `/`, `:` and quotes cannot stand in it. Source: the project's name."""
    margin: Annotated[float, Field(ge=0, le=1)] = 0.01
    """Smallest gain in pass@1 that is worth a new champion, 0-1; the whole interval must reach it.
    Chosen, untested: one problem in a hundred."""
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    """Of the interval around the gain. Source: common practice; a gain at the margin passes 1 time in 40."""
    resamples: Annotated[int, Field(ge=100)] = 10_000
    """Bootstrap resamples. Source: common practice; the ends of the interval move by about 0.001 from seed to seed on 150 problems."""
    min_problems: Annotated[int, Field(ge=1)] = 20
    """Fewest problems to decide on: with fewer, the bootstrap's interval is too narrow. Chosen, untested."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Of the bootstrap."""
    registry: bool = True
    """Whether to register; off, the decision is made and written only."""


class Evaluation(NamedTuple):
    """One evaluation folder, as read."""

    folder: Path
    result: EvaluationResult
    problems_sha256: str
    model_sha256: str
    pass_at_1: Mapping[str, float | None]
    """By problem; None where no completion was graded."""


def promote(config: PromoteConfig, *, base: Path, trained: Path, model: Path, out: Path, tracker: Tracker) -> PromotionResult:
    """Decides, registers, and writes the decision into `out`.

    Args:
        base: Evaluation of the model that training began with.
        trained: Evaluation of `model`, on the same problems with the same settings.
        model: The trained model's folder; registered by reference (`MICROCODER_MODEL_URI` names it on a cluster).

    Raises:
        InputError: An input that is missing or unfinished, an evaluation of another model, or two that cannot be compared.
        MicrocoderError: The registry cannot be reached: registering is this stage's work.
    """
    check_replaceable(out, "promotion")
    if not (model / "config.json").is_file():
        raise InputError(f"{model}: must be a model folder with a config.json; give the output of stage train")
    before, after = read_evaluation(base), read_evaluation(trained)
    if after.model_sha256 != model_sha256(str(model)):
        raise InputError(f"{trained}: must be an evaluation of {model}, got one of other weights; evaluate that model first")
    check_comparable(before, after)
    tracker.log_params(config.flat())
    result = decide(config, before, after)
    if config.registry:
        result = _register(result, before, after, model, tracker)
    record = StageRecord(
        stage="promote",
        config=config.model_dump(mode="json"),
        inputs={"base": before.result.model, "trained": after.result.model, "problems": after.problems_sha256},
        result=result.model_dump(mode="json"),
    )
    with atomic_folder(out, "promotion") as folder:
        write_stage_record(folder, record)
        if config.registry and result.promoted:  # last of all, with the record ready to be published: no champion without it
            _make_champion(result)
    _track(result, tracker)
    return result


def read_evaluation(folder: Path) -> Evaluation:
    """The result and the problems' scores of a finished evaluation."""
    result = read_stage_result(folder, "evaluate", EvaluationResult)
    file = folder / "problems.jsonl"
    scores = [parse_record(ProblemScore, row, f"{file}:{number}") for number, row in read_rows(file)]
    inputs = read_stage_record(folder, "evaluate").inputs
    pass_at_1 = {score.problem_id: _pass_at_1(score) for score in scores}
    return Evaluation(folder, result, inputs.get("problems", ""), inputs.get("model_sha256", ""), pass_at_1)


def check_comparable(base: Evaluation, trained: Evaluation) -> None:
    """Raises InputError where two evaluations are not of the same problems under the same settings."""
    if base.problems_sha256 != trained.problems_sha256 or base.pass_at_1.keys() != trained.pass_at_1.keys():
        only = len(base.pass_at_1.keys() ^ trained.pass_at_1.keys())
        raise InputError(
            f"{trained.folder}: must be an evaluation on the problems of {base.folder}, got other content ({only} problems are in one "
            "of them only); evaluate both models on one data set"
        )
    for name in _SETTINGS:
        ours, theirs = getattr(base.result, name), getattr(trained.result, name)
        if ours != theirs:
            raise InputError(f"{trained.folder}: {name} must be {ours} as in {base.folder}, got {theirs}; evaluate both the same way")


def decide(config: PromoteConfig, base: Evaluation, trained: Evaluation) -> PromotionResult:
    """Whether the trained model is better than its base, with the numbers.

    A problem without a graded completion in one of the evaluations is left out of both.
    """
    pairs = [
        (before, after)
        for before, after in ((base.pass_at_1[problem_id], trained.pass_at_1[problem_id]) for problem_id in base.pass_at_1)
        if before is not None and after is not None
    ]
    if not pairs:
        raise InputError(f"{trained.folder}: no problem has a graded completion in both evaluations; evaluate again with a working judge")
    base_pass, trained_pass = (statistics.fmean(column) for column in zip(*pairs, strict=True))
    low, high = paired_bootstrap(
        [after - before for before, after in pairs], confidence=config.confidence, resamples=config.resamples, seed=config.seed
    )
    promoted, reason = _verdict(config, trained_pass - base_pass, low, high, len(pairs))
    return PromotionResult(
        promoted=promoted,
        reason=reason,
        base_pass_at_1=base_pass,
        trained_pass_at_1=trained_pass,
        difference=trained_pass - base_pass,
        ci_low=low,
        ci_high=high,
        margin=config.margin,
        confidence=config.confidence,
        model_name=config.model_name,
    )


def _verdict(config: PromoteConfig, difference: float, low: float, high: float, num_problems: int) -> tuple[bool, str]:
    interval = f"{config.confidence:.0%} interval {low:+.3f} to {high:+.3f} over {num_problems} problems"
    if num_problems < config.min_problems:
        return False, f"{num_problems} problems are too few to decide on; min_problems is {config.min_problems}"
    if difference <= 0:
        return False, f"pass@1 did not rise: {difference:+.3f} ({interval})"
    if low < config.margin:
        return False, f"the gain of {difference:+.3f} pass@1 may be below the margin of {config.margin:g} ({interval})"
    return True, f"pass@1 rose by {difference:+.3f}, margin {config.margin:g} ({interval})"


def _register(result: PromotionResult, base: Evaluation, trained: Evaluation, model: Path, tracker: Tracker) -> PromotionResult:
    """Registers as challenger; says whether to become champion: better than the base, and not worse than the present champion."""
    from microcoder_core.tracking.registry import CHALLENGER, ModelRegistry

    name, registry = result.model_name, ModelRegistry()
    tags = {
        "microcoder.pass_at_1": repr(result.trained_pass_at_1),
        "microcoder.base_pass_at_1": repr(result.base_pass_at_1),
        _EVALUATION_TAG: _evaluation_sha256(trained),
        _MODEL_TAG: trained.model_sha256,
    }
    version = registry.register(name, model_uri(model), run_id=tracker.run_id, tags=tags, description=result.reason)
    registry.set_alias(name, CHALLENGER, version)
    champion = registry.champion(name)
    if champion is None:
        result = result.model_copy(update={"reason": result.reason + ("" if result.promoted else "; there is no champion yet")})
    elif result.promoted and champion.tags.get(_MODEL_TAG) != base.model_sha256:  # else the base is the champion
        result = _against_champion(result, champion.version, champion.tags, tags[_EVALUATION_TAG])
    return result.model_copy(update={"version": version})


def _against_champion(result: PromotionResult, version: str, tags: Mapping[str, str], evaluation: str) -> PromotionResult:
    if tags.get(_EVALUATION_TAG) != evaluation:
        reason = f"{result.reason}, but champion version {version} was measured on another evaluation; evaluate it on this one as the base"
        return result.model_copy(update={"promoted": False, "reason": reason})
    its_pass = float(tags["microcoder.pass_at_1"])
    if result.trained_pass_at_1 >= its_pass:
        return result
    scores = f"{its_pass:.3f} on the same evaluation and this model {result.trained_pass_at_1:.3f}"
    reason = f"{result.reason}, but champion version {version} has {scores}"
    return result.model_copy(update={"promoted": False, "reason": reason})


def _make_champion(result: PromotionResult) -> None:
    from microcoder_core.tracking.registry import CHAMPION, ModelRegistry

    assert result.version is not None
    ModelRegistry().set_alias(result.model_name, CHAMPION, result.version)


def _track(result: PromotionResult, tracker: Tracker) -> None:
    tracker.log_metrics(
        {
            "promote/promoted": float(result.promoted),
            "promote/base_pass_at_1": result.base_pass_at_1,
            "promote/trained_pass_at_1": result.trained_pass_at_1,
            "promote/difference": result.difference,
            "promote/ci_low": result.ci_low,
            "promote/ci_high": result.ci_high,
        }
    )
    tracker.set_tags({"microcoder.promotion": result.reason, "microcoder.model_version": f"{result.model_name}/{result.version or 'none'}"})


def _pass_at_1(score: ProblemScore) -> float | None:
    graded = score.samples - score.ungraded
    return pass_at_k(graded, score.correct, 1) if graded else None


def _evaluation_sha256(evaluation: Evaluation) -> str:
    """Names the problems and the settings: scores of models with the same are comparable."""
    settings = [getattr(evaluation.result, name) for name in _SETTINGS]
    problems = sorted(evaluation.pass_at_1)
    return hashlib.sha256(json.dumps([evaluation.problems_sha256, problems, settings]).encode()).hexdigest()
