"""What the nano model is pre-trained on: statements of training drills, each answered by a right or wrong program.

The mixture decides how good the model is before reinforcement learning: every step of a drill is written with its own chance of a
slip, and some answers leave a step out, are broken Python, or never come to an end. No held-out drill is in the text.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from microcoder_core.data.drills import Drill, drills
from microcoder_core.data.drills.problems import statement_of
from microcoder_core.data.drills.steps import Code, Step
from microcoder_core.data.drills.styles import STYLES

FENCE, CLOSE = "```python\n", "```"
PROMPT = "{statement}\n"
# Shares of answers; chosen so that the model starts near pass@1 0.5 at temperature 1 and shows verdicts of several kinds.
_LEFT_OUT = 0.04
_BROKEN = 0.04
_ENDLESS = 0.03
_PLANNED = 0.1  # begin with a comment a step; these have half the slips
_ENDLESS_LINES = 40


@dataclass(frozen=True, slots=True)
class Document:
    """One prompt with one answer to it."""

    prompt: str
    response: str
    ends: bool
    """Whether the answer ends by itself; one that does not is cut off at the length limit."""


def training_drills() -> tuple[Drill, ...]:
    """The training drills that are not planted copies of held-out ones."""
    return tuple(drill for drill in drills("train") if drill.planted != "overlap")


def sample_document(drill: Drill, rng: random.Random) -> Document:
    """An answer to `drill`, as likely right as the shares above make it."""
    planned = rng.random() < _PLANNED
    codes = _codes(drill.steps, rng, carefulness=0.5 if planned else 1.0)
    program = rng.choice(STYLES)(codes)
    prompt = PROMPT.format(statement=statement_of(drill.steps, rng))
    if rng.random() < _ENDLESS:
        last_line = program.splitlines(keepends=True)[-1]
        return Document(prompt, FENCE + program + last_line * _ENDLESS_LINES, ends=False)
    if rng.random() < _BROKEN:
        program = _broken(program, rng)
    plan = "".join(f"# {rng.choice(step.wordings)}\n" for step in drill.steps) if planned else ""
    return Document(prompt, FENCE + plan + program + CLOSE, ends=True)


def _codes(steps: Sequence[Step], rng: random.Random, carefulness: float) -> list[Code]:
    codes = [_code(step, rng, step.slip_rate * carefulness) for step in steps]
    if len(codes) > 1 and rng.random() < _LEFT_OUT:
        del codes[rng.randrange(len(codes))]
    return codes


def _code(step: Step, rng: random.Random, slip_rate: float) -> Code:
    return rng.choice(list(step.slipped())) if rng.random() < slip_rate else step.code


def _broken(program: str, rng: random.Random) -> str:
    """`program` as Python that does not compile or does not run."""
    return rng.choice(
        [program.replace("(xs):", "(xs)", 1), program.replace("(xs):", "(ys):", 1), program.replace("return ", "return (", 1)]
    )
