"""Trains the tiny model in as many processes as a launcher starts; the main one writes what came of it.

python -m torch.distributed.run --nproc-per-node 2 tests/grpo/train_processes.py OUT.json WORK '{"parallel": "fsdp"}' [STEPS]
"""

import json
import sys
from pathlib import Path

import torch
from torch.distributed.tensor import DTensor

from microcoder_core.errors import StageStopped
from microcoder_core.grpo.checkpoint import Checkpoints
from microcoder_core.grpo.parallel import Processes
from microcoder_core.grpo.trainer import Trainer
from microcoder_core.grpo.weights import full_weights
from microcoder_core.sampling.transformers_sampler import TransformersSampler
from tests.tiny import EvenRewarder, TinyTokenizer, tiny_config, tiny_model, tiny_tasks


def run(out: Path, work: Path | None, changes: dict[str, object]) -> None:
    torch.set_num_threads(1)
    model = tiny_model()
    processes = Processes(on_cpu=True)
    trainer = Trainer(
        tiny_config(**changes),
        model=model,
        pad_id=0,
        tasks=tiny_tasks(),
        sampler=TransformersSampler(model, TinyTokenizer()),
        rewarder=EvenRewarder(),
        checkpoints=Checkpoints(work, 2) if work and processes.is_main else None,
    )
    trainer.train()
    weights = {name: weight.sum().item() for name, weight in full_weights(model)}
    result = {
        "processes": processes.count,
        "sharded": all(isinstance(weight, DTensor) for weight in model.parameters()),
        "history": trainer.history,
        "weights": weights,
    }
    if processes.is_main:
        out.write_text(json.dumps(result))
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    try:
        run(Path(sys.argv[1]), Path(sys.argv[2]) if sys.argv[2] else None, json.loads(sys.argv[3]))
    except StageStopped as stop:
        sys.exit(stop.exit_code)
