"""What tells that a run has gone wrong, and what is done about it.

| sign | reaction |
|---|---|
| loss or gradient not finite | the step is not taken; the run fails, its newest checkpoint stays |
| diversity has fallen to a small share of what it was | the run saves and fails, or warns |
| no group with both right and wrong completions for many steps | a warning |
| nothing happens for long (a hung collective, a dead driver) | the stacks of all threads on stderr, and the process ends with 1 |
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import sys
from collections.abc import Iterator
from typing import Any, TextIO

from microcoder_core.errors import TrainingError
from microcoder_core.grpo.config import HealthConfig
from microcoder_core.records import Record

logger = logging.getLogger(__name__)


class HealthState(Record):
    """What the signs are told from; part of a checkpoint."""

    first_diversity: float | None = None
    collapsed_steps: int = 0
    """Steps in a row, up to now, with hardly any of it left."""
    useless_steps: int = 0
    """Steps in a row, up to now, that taught nothing."""


def observe_health(state: HealthState, config: HealthConfig, metrics: dict[str, float]) -> HealthState:
    """The state after a step with these metrics."""
    diversity = metrics.get("microcoder/diversity")
    first = state.first_diversity if state.first_diversity is not None else diversity
    collapsed = diversity is not None and first is not None and diversity < config.collapse_share * first
    return HealthState(
        first_diversity=first,
        collapsed_steps=state.collapsed_steps + 1 if collapsed else 0,
        useless_steps=state.useless_steps + 1 if metrics.get("frac_reward_zero_std") == 1 else 0,
    )


def check_health(state: HealthState, config: HealthConfig) -> None:
    """Warns of a run that teaches nothing, and of one that has collapsed.

    Raises:
        TrainingError: It has collapsed, and `on_collapse` is `stop`.
    """
    if state.useless_steps and state.useless_steps % config.patience_steps == 0:
        logger.warning(
            "train: for %d steps no group had both right and wrong completions, so nothing is learnt; give easier or harder problems",
            state.useless_steps,
        )
    if state.collapsed_steps and state.collapsed_steps % config.patience_steps == 0:
        collapse = (
            f"diversity has been below {config.collapse_share:g} of its first value ({state.first_diversity:.3f}) for "
            f"{state.collapsed_steps} steps: the model repeats itself; raise the temperature, or lower optimizer.learning_rate"
        )
        if config.on_collapse == "stop":
            raise TrainingError(f"{collapse}; health.on_collapse=warn goes on")
        logger.warning("train: %s", collapse)


@contextlib.contextmanager
def hang_ends_process(deadline_s: float) -> Iterator[None]:
    """Inside, `still_alive` must be called every `deadline_s` seconds at least, else the process ends with exit code 1."""
    _armed.append(deadline_s)
    still_alive()
    try:
        yield
    finally:
        _armed.clear()
        faulthandler.cancel_dump_traceback_later()


def still_alive() -> None:
    """Puts the end off by another deadline; does nothing outside `hang_ends_process`."""
    if _armed and (stream := _stderr()):
        faulthandler.dump_traceback_later(_armed[0], exit=True, file=stream)


_armed: list[float] = []


def _stderr() -> TextIO | Any | None:
    """What a handler in C can write to; None where stderr is no file."""
    for stream in (sys.stderr, sys.__stderr__):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            if stream is not None and stream.fileno() >= 0:
                return stream
    return None
