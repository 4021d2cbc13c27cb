"""Small real objects for tests: a random Qwen3 model with a byte tokenizer, tasks, a rewarder that needs no judge."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import torch

from microcoder_core.grpo.config import TrainConfig
from microcoder_core.grpo.rollout import Task
from microcoder_core.records import Completion, Judgement, Problem, TestCase, Verdict


def tiny_model(seed: int = 0) -> Any:
    """A random Qwen3 of about 20,000 parameters, vocabulary 64."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    sizes = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 16,
    }
    config = Qwen3Config(vocab_size=64, max_position_embeddings=256, eos_token_id=1, pad_token_id=0, tie_word_embeddings=True, **sizes)
    return Qwen3ForCausalLM(config).eval()


class TinyTokenizer:
    """Token n is the character chr(32 + n); 0 pads, 1 ends."""

    pad_token_id = 0
    eos_token_id = 1

    def decode(self, token_ids: Any, skip_special_tokens: bool = True) -> str:
        return "".join(chr(32 + token) for token in token_ids if token > 1 or not skip_special_tokens)


class EvenRewarder:
    """Accepts completions whose token ids have an even sum: about half of random ones."""

    def __init__(self) -> None:
        self.calls = 0

    def submit(self, problem: Problem, completion: Completion) -> Future[Judgement]:
        self.calls += 1
        verdict = Verdict.WRONG_ANSWER if sum(completion.token_ids) % 2 else Verdict.ACCEPTED
        future: Future[Judgement] = Future()
        future.set_result(Judgement(problem_id=problem.problem_id, verdict=verdict))
        return future


def tiny_tasks(count: int = 6) -> list[Task]:
    """Problems whose prompts differ in length."""
    tasks = []
    for number in range(count):
        problem = Problem(problem_id=f"p{number}", statement="x", form="stdin", tests=(TestCase(input="", expected=""),))
        tasks.append(Task(problem, tuple(range(2, 5 + number % 4))))
    return tasks


def tiny_config(**changes: Any) -> TrainConfig:
    """A configuration that trains the tiny model in a second."""
    values: dict[str, Any] = {
        "max_steps": 4,
        "rollout": {"train_batch_size": 4, "group_size": 4, "max_new_tokens": 12, "temperature_stages": [[0, 1.2]]},
        "mask": {"repeat_tokens": 2},
        "optimizer": {"learning_rate": 1e-2, "mini_batch_size": 2, "micro_batch_tokens": 64},
        "checkpoint": {"every_steps": 2},
        "torch_threads": 1,
    }
    for key, value in changes.items():
        values[key] = {**values[key], **value} if isinstance(value, dict) and key in values else value
    return TrainConfig.model_validate(values)
