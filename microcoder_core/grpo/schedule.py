"""What changes with the step: the temperature, in stages, and the learning rate."""

from __future__ import annotations

from collections.abc import Sequence

from microcoder_core.grpo.config import AutoTemperatureConfig
from microcoder_core.records import Record

Stages = Sequence[tuple[int, float]]


class TemperatureState(Record):
    """Where automatic stages stand; part of a checkpoint."""

    stages: tuple[tuple[int, float], ...] = ()
    """(first step, temperature) of each jump so far."""
    smoothed_diversity: float | None = None
    low_steps: int = 0
    """Steps in a row, up to now, for which it has been low."""


def temperature_at(stages: Stages, step: int) -> tuple[int, float]:
    """Index and temperature of the stage that step (from 0) falls into.

    Stages are steps, never a ramp: even a short ramp shifts diversity for good (insight TEMP-10).
    """
    index = max(number for number, (start, _) in enumerate(stages) if start <= step)
    return index, stages[index][1]


def observe_diversity(state: TemperatureState, config: AutoTemperatureConfig, diversity: float, step: int) -> TemperatureState:
    """The state after step `step` (from 0), whose rollout had so much diversity; a new stage begins at the next step."""
    before = state.smoothed_diversity
    smoothed = diversity if before is None else before + config.smoothing * (diversity - before)
    low_steps = state.low_steps + 1 if smoothed < config.diversity_floor else 0
    began = state.stages[-1][0] if state.stages else 0
    has_next = len(state.stages) < len(config.temperatures)
    if has_next and low_steps >= config.patience_steps and step + 1 - began >= config.hold_steps:
        stages = (*state.stages, (step + 1, config.temperatures[len(state.stages)]))
        return TemperatureState(stages=stages, smoothed_diversity=smoothed)
    return TemperatureState(stages=state.stages, smoothed_diversity=smoothed, low_steps=low_steps)


def warmup_factor(update: int, warmup_steps: int) -> float:
    """Factor of the learning rate at an optimiser step (from 0): linear up to 1, then constant."""
    return min(1.0, (update + 1) / (warmup_steps + 1))
