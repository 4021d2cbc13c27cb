"""The flags that GRPO scripts customarily have, as settings of `microcoder train`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from microcoder_core.stages.presets import load_train_config
from train_grpo import settings

ROOT = Path(__file__).parents[2]
SMALL = ("--max_seq_length", "24", "--per_device_train_batch_size", "2", "--gradient_accumulation_steps", "1")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MICROCODER_TRACKING": "off"}
    return subprocess.run(
        [sys.executable, str(ROOT / "train_grpo.py"), *arguments], capture_output=True, text=True, timeout=120, env=environment
    )


def test_flags_become_settings() -> None:
    flags = settings(
        difficulty_level="hard",
        use_conditional_mask=True,
        diversity_driven_temp=True,
        remove_kl_loss=True,
        clipping_ratio=0.3,
        num_train_epochs=3,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=8,
    )
    config = load_train_config(["microcoder", "quickstart"], flags)
    assert (config.difficulties, config.mask.kind, config.loss.kl_coef, config.loss.clip_high, config.epochs) == (
        ("hard",),
        "conditional",
        0,
        0.3,
        3,
    )
    assert (config.rollout.train_batch_size, config.optimizer.mini_batch_size, config.rollout.max_new_tokens) == (32, 32, 2048)
    assert config.rollout.temperature_stages == ((0, 0.7),)
    assert config.rollout.temperature_auto is not None
    assert config.rollout.temperature_auto.temperatures == (1.0,)


def test_flags_can_say_the_opposite() -> None:
    flags = settings(use_conditional_mask=False, diversity_driven_temp=False, remove_kl_loss=False, learning_rate=1e-5, max_seq_length=99)
    config = load_train_config(["microcoder", "quickstart"], flags)
    assert (config.mask.kind, config.rollout.temperature_auto, config.loss.kl_coef) == ("none", None, 0.04)
    assert (config.optimizer.learning_rate, config.rollout.max_new_tokens) == (1e-5, 99)


def test_it_trains(drills: Path, tmp_path: Path) -> None:
    out = tmp_path / "model"
    ran = run(
        *("--model_name_or_path", "nano", "--dataset_name", str(drills), "--output_dir", str(out), "--difficulty_level", "easy"),
        *("--use_conditional_mask", "True", "--diversity_driven_temp", "True", "--remove_kl_loss", "True", "--clipping_ratio", "0.3"),
        *(*SMALL, "max_steps=1", "rollout.group_size=2"),
    )
    assert ran.returncode == 0, ran.stderr
    record = json.loads((out / "stage.json").read_text())
    assert record["config"]["difficulties"] == ["easy"]
    assert record["config"]["loss"]["clip_high"] == 0.3
    assert (out / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--difficulty_level", "hard"], "difficulties: no problem has difficulty hard; there are: easy"),
        (["--difficulty_level", "tough"], "'tough' is not one of"),
        (["--use_conditional_mask", "perhaps"], "'perhaps' is not a valid boolean"),
        (["--learning_rat", "1"], "No such option"),
        (["mask.rho=2"], "mask.rho: Input should be less than or equal to 1"),
    ],
)
def test_what_is_wrong_is_told(arguments: list[str], message: str, drills: Path, tmp_path: Path) -> None:
    easy = tmp_path / "easy.jsonl"
    problem = {"problem_id": "a", "statement": "s", "form": "stdin", "tests": [{"input": "", "expected": "x"}], "difficulty": "easy"}
    easy.write_text(json.dumps(problem) + "\n")
    ran = run("--model_name_or_path", "nano", "--dataset_name", str(easy), "--output_dir", str(tmp_path / "model"), *SMALL, *arguments)
    assert ran.returncode == 2
    assert message in ran.stderr
    assert not (tmp_path / "model").exists()
