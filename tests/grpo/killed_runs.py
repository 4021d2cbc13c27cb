"""Trains the tiny model once undisturbed, then again, killed twenty times; prints where, and whether the weights are the same.

python tests/grpo/killed_runs.py FOLDER SEED
"""

import os
import random
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from microcoder_core.grpo import checkpoint, policy, trainer, update
from microcoder_core.grpo.checkpoint import Checkpoints
from microcoder_core.sampling import transformers_sampler
from tests.grpo.test_trainer import trainer as make_trainer
from tests.grpo.test_trainer import weights
from tests.tiny import tiny_config

KILLS, STEPS = 20, 12
PLACES = {
    "rollout": (transformers_sampler, "_draw", 100),
    "judged rollout": (checkpoint, "atomic_file", 8),
    "forward": (update, "backward", 8),
    "backward": (policy, "_logprobs", 8),
    "optimiser": (torch.optim.AdamW, "step", 8),
    "metrics": (Checkpoints, "append", 8),
    "weights of a checkpoint": (checkpoint, "save_file", 3),
    "optimiser of a checkpoint": (torch, "save", 3),
    "publishing a checkpoint": (checkpoint, "publish_folder", 3),
    "old checkpoints": (shutil, "rmtree", 4),
    "state": (checkpoint, "write_text", 4),
    "reading a checkpoint": (trainer, "load_training_state", 1),
}
"""Where a run is killed: owner and name of a function, and at which of how many first calls at most."""


def config() -> Any:
    return tiny_config(max_steps=STEPS, checkpoint={"every_steps": 2}, loss={"importance_correction": "token"})


def arm(owner: Any, name: str, call: int, *, before: bool) -> None:
    """Kills this process at a call of a function: before its work, or after."""
    called: Callable[..., Any] = getattr(owner, name)
    calls = []

    def deadly(*arguments: Any, **keywords: Any) -> Any:
        calls.append(1)
        if len(calls) == call and before:
            os.kill(os.getpid(), signal.SIGKILL)
        result = called(*arguments, **keywords)
        if len(calls) == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, deadly)


def run_in_child(folder: Path, place: str, call: int, *, before: bool) -> int:
    child = os.fork()
    if child == 0:
        arm(*PLACES[place][:2], call, before=before)
        make_trainer(config(), folder).train()
        os._exit(0)
    return os.waitpid(child, 0)[1]


def main(folder: Path, seed: int) -> None:
    undisturbed = make_trainer(config())
    undisturbed.train()
    draw = random.Random(seed)
    places = [*PLACES, *draw.choices([*PLACES], k=KILLS)]
    killed: list[str] = []
    while len(killed) < KILLS:
        if "reading a checkpoint" in places[0] and not list(folder.glob("checkpoints/step-*")):
            places.append(places.pop(0))
        call, before = draw.randint(1, PLACES[places[0]][2]), draw.random() < 0.5
        status = run_in_child(folder, places[0], call, before=before)
        if os.WIFSIGNALED(status):
            killed.append(f"{places.pop(0)}, call {call}, {'before' if before else 'after'}")
        elif status:
            sys.exit(f"a resumed run failed after {killed}")
        else:  # it was through before that call
            places.append(places.pop(0))
            shutil.rmtree(folder)
    last = make_trainer(config(), folder)
    last.train()
    sys.stdout.write("\n".join(killed) + "\n")
    sys.exit(None if weights(last) == weights(undisturbed) else "the weights differ")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
