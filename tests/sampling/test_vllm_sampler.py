"""The vLLM sampler where vLLM is not installed, or its engine is a stand-in."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from microcoder_core.errors import InputError, SamplingError
from microcoder_core.nano import NANO_MODEL
from microcoder_core.sampling.config import SamplerConfig
from microcoder_core.sampling.models import LoadedModel, load_model
from microcoder_core.sampling.vllm_sampler import VllmSampler
from microcoder_core.stages.rollout_parts import open_sampler
from tests.sampling.fake_vllm import Net, Worker, loads
from tests.tiny import TinyTokenizer


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return load_model(str(NANO_MODEL))


def refused(config: SamplerConfig, loaded: LoadedModel, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint), open_sampler(config, loaded):
        pass


def test_without_vllm_it_says_how_to_install_it(loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    refused(SamplerConfig(kind="vllm"), loaded, r"sampler\.kind: .*`pip install 'microcoder\[vllm\]'`")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_sleep_without_cuda_is_refused(loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    refused(SamplerConfig(kind="vllm", sleep=True), loaded, r"sampler\.sleep: needs a CUDA device, got none; leave it out")


class Llm:
    """What the sampler needs of `vllm.LLM` for its weights; notes what is woken and put to sleep."""

    def __init__(self, load: Callable[[Net, Iterable[tuple[str, torch.Tensor]]], object] = loads) -> None:
        self.worker = Worker(load)
        self.notes: list[str] = []
        self.resets = True
        self.llm_engine = SimpleNamespace(vllm_config=self.worker.vllm_config)

    def collective_rpc(self, method: str, args: tuple[Any, ...] = ()) -> list[Any]:
        self.notes.append(method)
        return [getattr(self.worker, method)(*args)]

    def reset_prefix_cache(self) -> bool:
        self.notes.append("reset")
        return self.resets

    def sleep(self, level: int) -> None:
        self.notes.append(f"sleep {level}")

    def wake_up(self, tags: list[str]) -> None:
        self.notes.append(f"wake {' '.join(tags)}")


def sampler(llm: Llm, sleep: bool = False) -> VllmSampler:
    return VllmSampler(llm, TinyTokenizer(), end_tokens=frozenset({1}), sleep=sleep, sync_deadline_s=5.0)


def sample(one: VllmSampler) -> None:
    one.sample([], seeds=[], group_size=1, temperature=1.0, max_new_tokens=1)


def test_an_engine_that_sleeps_wakes_its_weights_for_a_sync_and_its_cache_for_sampling() -> None:
    llm = Llm()
    one = sampler(llm, sleep=True)
    one.update_weights(Net(1).state_dict().items(), 1)
    sample(one)
    sample(one)
    sync = ["wake weights", "microcoder_receive", "reset"]
    again = ["wake kv_cache weights", "microcoder_state", "sleep 1"]
    assert llm.notes == ["sleep 1", *sync, "wake kv_cache", "microcoder_state", "sleep 1", *again]


def test_a_cache_that_is_in_use_fails_the_sync() -> None:
    llm = Llm()
    llm.resets = False
    with pytest.raises(SamplingError, match="computed with the old weights"):
        sampler(llm).update_weights(Net(1).state_dict().items(), 1)


def test_an_engine_that_does_nothing_is_noticed_and_not_sampled_from() -> None:
    one = sampler(Llm(lambda net, weights: None))
    with pytest.raises(SamplingError, match=r"arrived at the engine otherwise than they were sent: .*3 in all"):
        one.update_weights(Net(1).state_dict().items(), 1)
    with pytest.raises(SamplingError, match="does not have the weights of the last sync"):
        sample(one)


def test_before_the_first_sync_the_weights_are_the_folder_s() -> None:
    sample(sampler(Llm()))
