"""Samplers that have a vLLM engine, with a real one on the CPU and the nano model (`make test-vllm`)."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from microcoder_core.errors import SamplingError
from microcoder_core.nano import NANO_MODEL
from microcoder_core.records import Completion
from microcoder_core.sampling.base import TrainedSampler, prompt_seeds
from microcoder_core.sampling.config import SamplerConfig
from microcoder_core.sampling.models import LoadedModel, load_model, set_torch_threads
from microcoder_core.stages.rollout_parts import open_sampler
from tests.ratios import worst_difference
from tests.sampling.real_vllm import START_S, Server, free_port

pytestmark = pytest.mark.vllm

PROMPTS = [tuple(range(20, 60)), (9, 30, 31), tuple(range(100, 230))]
KINDS = ["vllm", "vllm_server"]


@pytest.fixture(scope="session")
def loaded() -> LoadedModel:
    set_torch_threads(1)
    return load_model(str(NANO_MODEL), trainable=True)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    one = Server(tmp_path_factory.mktemp("server") / "log")
    yield one
    one.stop()


@pytest.fixture(scope="session")
def samplers(loaded: LoadedModel, server: Server) -> Iterator[dict[str, TrainedSampler]]:
    """One of each kind, which all tests share."""
    with (
        open_sampler(SamplerConfig(kind="vllm", cpu_cache_gib=0.25), loaded) as in_process,
        open_sampler(SamplerConfig(kind="vllm_server", url=server.url, sync_deadline_s=START_S), loaded) as client,
    ):
        yield {"vllm": in_process, "vllm_server": client}


Versions = Callable[[], int]


@pytest.fixture(scope="session")
def next_version() -> Versions:
    numbers = iter(range(1, 10**6))
    return lambda: next(numbers)


@pytest.fixture(params=KINDS)
def sampler(request: pytest.FixtureRequest, samplers: dict[str, TrainedSampler], loaded: LoadedModel, next_version: Versions) -> Any:
    """A sampler with the weights of `loaded`."""
    one = samplers[request.param]
    one.update_weights(weights_of(loaded.model), next_version())
    return one


def without_tied(model: Any) -> Iterable[tuple[str, torch.Tensor]]:
    return [(name, weight) for name, weight in weights_of(model) if name != "lm_head.weight"]


@pytest.fixture
def moved(loaded: LoadedModel) -> Iterator[Any]:
    """The model with other weights, which are put back."""
    before = {name: weight.clone() for name, weight in loaded.model.state_dict().items()}
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in loaded.model.parameters():
            weight.add_(torch.randn_like(weight) * 0.02)
    yield loaded.model
    loaded.model.load_state_dict(before)


def weights_of(model: Any) -> Iterable[tuple[str, torch.Tensor]]:
    return model.state_dict().items()


def sample(one: TrainedSampler, temperature: float = 1.2, **changes: Any) -> list[list[Completion]]:
    settings = {"group_size": 8, "max_new_tokens": 48, "seeds": prompt_seeds((0, 1), 3)} | changes
    return one.sample(PROMPTS, temperature=temperature, **settings)


@pytest.mark.parametrize("temperature", [0.6, 1.2, 1.8])
def test_logprobs_are_the_model_s_at_the_temperature(sampler: TrainedSampler, loaded: LoadedModel, temperature: float) -> None:
    groups = sample(sampler, temperature)
    assert {completion.temperature for group in groups for completion in group} == {temperature}
    assert worst_difference(loaded.model, PROMPTS, groups) < 1e-4


def test_same_seed_same_completions_and_another_seed_others(sampler: TrainedSampler) -> None:
    first = sample(sampler)
    assert first == sample(sampler)
    assert first != sample(sampler, seeds=prompt_seeds((0, 2), 3))
    assert len({completion.token_ids for completion in first[0]}) > 1


def test_draws_do_not_depend_on_what_else_is_in_the_batch(sampler: TrainedSampler) -> None:
    ids = [completion.token_ids for completion in sample(sampler)[1]]
    alone = sampler.sample(PROMPTS[1:2], seeds=[(0, 1, 1)], group_size=8, temperature=1.2, max_new_tokens=48)
    assert [completion.token_ids for completion in alone[0]] == ids


def test_more_prompts_than_the_engine_computes_at_once_are_computed_in_turn(sampler: TrainedSampler) -> None:
    prompts = [tuple(range(number, number + 200)) for number in range(60)]
    groups = sampler.sample(prompts, seeds=prompt_seeds((5,), 60), group_size=4, temperature=1.2, max_new_tokens=3)
    assert [len(group) for group in groups] == [4] * 60


def test_finish_reason_is_stop_exactly_when_the_last_token_ends(sampler: Any) -> None:
    completions = [completion for group in sample(sampler, group_size=24) for completion in group]
    assert {completion.finish_reason for completion in completions} == {"stop", "length"}
    ends = sampler.end_token_ids
    for completion in completions:
        assert (completion.finish_reason == "stop") == (completion.token_ids[-1] in ends)
        assert not ends & set(completion.token_ids[:-1])
        assert len(completion.token_ids) == len(completion.logprobs or ()) <= 48
        assert completion.finish_reason == "stop" or len(completion.token_ids) == 48
        answer = completion.token_ids[:-1] if completion.finish_reason == "stop" else completion.token_ids
        assert completion.text == sampler.tokenizer.decode(answer, skip_special_tokens=True)


def test_a_second_end_token_ends_a_completion_and_is_in_it(sampler: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    second = sample(sampler)[0][0].token_ids[3]
    monkeypatch.setattr(sampler, "end_token_ids", sampler.end_token_ids | {second})
    ended = sample(sampler)[0][0]
    assert (ended.finish_reason, ended.token_ids[-1], len(ended.token_ids)) == ("stop", second, ended.token_ids.index(second) + 1)


def test_greedy_is_the_transformers_sampler_s_and_records_no_logprobs(sampler: TrainedSampler, loaded: LoadedModel) -> None:
    ours = sample(sampler, temperature=0, group_size=1)
    with open_sampler(SamplerConfig(), loaded) as transformers_sampler:
        theirs = sample(transformers_sampler, temperature=0, group_size=1)
    assert [[(one.text, one.token_ids, one.finish_reason, one.logprobs) for one in group] for group in ours] == [
        [(one.text, one.token_ids, one.finish_reason, one.logprobs) for one in group] for group in theirs
    ]


def test_each_completion_is_handed_over_as_it_ends(sampler: TrainedSampler) -> None:
    seen: dict[tuple[int, int], tuple[float, Completion]] = {}
    groups = sample(
        sampler,
        temperature=1.8,  # some end soon, some never
        max_new_tokens=370,
        on_finished=lambda prompt, number, completion: seen.update({(prompt, number): (time.monotonic(), completion)}),
    )
    assert {place: completion for place, (_, completion) in seen.items()} == {
        (prompt, number): one for prompt, group in enumerate(groups) for number, one in enumerate(group)
    }
    ends = sorted(moment for moment, _ in seen.values())
    assert ends[-1] - ends[0] > 0.05
    assert statistics.median(len(one.token_ids) for _, one in sorted(seen.values())[:4]) < max(
        len(one.token_ids) for _, one in seen.values()
    )


def test_what_interrupts_sampling_leaves_the_sampler_usable(sampler: TrainedSampler) -> None:
    def interrupt(prompt: int, number: int, completion: Completion) -> None:
        raise KeyboardInterrupt

    first = sample(sampler)
    with pytest.raises(KeyboardInterrupt):
        sample(sampler, on_finished=interrupt)
    assert sample(sampler) == first


@pytest.mark.parametrize("sent", [weights_of, without_tied])
def test_new_weights_are_sampled_from_only_after_the_update(
    sampler: TrainedSampler, moved: Any, next_version: Versions, sent: Callable[[Any], Iterable[tuple[str, torch.Tensor]]]
) -> None:
    assert worst_difference(moved, sample(sampler)) > 0.05
    version = next_version()
    sampler.update_weights(sent(moved), version)
    groups = sample(sampler)
    assert worst_difference(moved, groups) < 1e-4
    assert {completion.policy_version for group in groups for completion in group} == {version}


def test_weights_of_the_version_that_it_has_are_not_asked_for(sampler: TrainedSampler) -> None:
    version = sample(sampler)[0][0].policy_version
    sampler.update_weights((pytest.fail("asked for a weight") for _ in range(1)), version)


def test_a_sync_that_lacks_a_layer_is_no_longer_sampled_from(sampler: TrainedSampler, moved: Any, next_version: Versions) -> None:
    def fails() -> Iterable[tuple[str, torch.Tensor]]:
        yield from list(weights_of(moved))[:5]
        raise RuntimeError("a rank is gone")

    with pytest.raises((SamplingError, RuntimeError), match="a rank is gone"):
        sampler.update_weights(fails(), next_version())
    with pytest.raises(SamplingError, match="--resume"):
        sample(sampler)
    sampler.update_weights(weights_of(moved), next_version())
    assert worst_difference(moved, sample(sampler)) < 1e-4


def test_an_engine_that_takes_weights_and_goes_on_with_others_is_noticed(
    samplers: dict[str, TrainedSampler], moved: Any, next_version: Versions, monkeypatch: pytest.MonkeyPatch
) -> None:
    one: Any = samplers["vllm"]
    one.update_weights(weights_of(moved), next_version())
    worker = one._llm.llm_engine.model_executor.driver_worker.worker
    with torch.no_grad():
        moved.model.embed_tokens.weight.add_(0.01)
    with monkeypatch.context() as broken:
        broken.setattr(worker, "reload_weights", lambda weights_iterator: list(weights_iterator), raising=False)
        with pytest.raises(SamplingError, match=r"goes on with others: .*model\.embed_tokens\.weight"):
            one.update_weights(weights_of(moved), next_version())
        broken.setattr(worker, "reload_weights", lambda weights_iterator: None, raising=False)
        with pytest.raises(SamplingError, match="arrived at the engine otherwise"):
            one.update_weights(weights_of(moved), next_version())
    one.update_weights(weights_of(moved), next_version())
    assert worst_difference(moved, sample(one)) < 1e-4


def test_a_sync_that_hangs_ends_at_the_deadline(
    samplers: dict[str, TrainedSampler], loaded: LoadedModel, next_version: Versions, monkeypatch: pytest.MonkeyPatch
) -> None:
    one: Any = samplers["vllm"]
    monkeypatch.setattr(one, "_sync_deadline_s", 0.5)
    go_on = threading.Event()

    def hanging() -> Iterable[tuple[str, torch.Tensor]]:
        go_on.wait(30)
        yield from weights_of(loaded.model)

    started = time.monotonic()
    with pytest.raises(SamplingError, match=r"took longer than 0\.5 s"):
        one.update_weights(hanging(), next_version())
    assert time.monotonic() - started < 2
    go_on.set()
    time.sleep(2)  # the thread ends what it began
    with pytest.raises(SamplingError, match="not have the weights"):
        sample(one)


def test_an_engine_leaves_the_process_as_it_was(samplers: dict[str, TrainedSampler]) -> None:
    assert "LD_PRELOAD" not in os.environ
    assert torch.get_num_threads() == 1
    torch.set_num_threads(2)
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)


def test_a_server_that_hangs_or_goes_away_is_noticed_in_time(tmp_path: Path, loaded: LoadedModel) -> None:
    one = Server(tmp_path / "log", VLLM_API_KEY="secret")
    try:
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("VLLM_API_KEY", "secret")
            config = SamplerConfig(kind="vllm_server", url=one.url, sync_deadline_s=START_S, sync_folder=tmp_path / "sync")
            with open_sampler(config, loaded) as client:
                client.update_weights(weights_of(loaded.model), 0)
                assert worst_difference(loaded.model, PROMPTS, sample(client)) < 1e-4
                assert list((tmp_path / "sync").iterdir()) == []
                assert httpx.post(f"{one.url}/collective_rpc", json={"method": "microcoder_state"}).status_code == 401
                client.config = config.model_copy(update={"sync_deadline_s": 2.0})  # type: ignore[attr-defined]
                one.signal(signal.SIGSTOP)
                check_fails_within(4.0, client, loaded)
                one.signal(signal.SIGCONT)
                client.update_weights(weights_of(loaded.model), 1)
                one.stop()
                check_fails_within(4.0, client, loaded)
    finally:
        one.stop()


TWO_PROCESSES = """
import torch
from accelerate import Accelerator
from tests.sampling.test_vllm import NANO_MODEL, SamplerConfig, load_model, open_sampler, sample, weights_of, worst_difference

loaded = load_model(str(NANO_MODEL), trainable=True)
with open_sampler(SamplerConfig(kind="vllm", cpu_cache_gib=0.25), loaded) as sampler:
    accelerator = Accelerator(cpu=True)
    with torch.no_grad():
        loaded.model.model.norm.weight.mul_(1.5)
    sampler.update_weights(weights_of(loaded.model), 1)
    groups = sample(sampler, group_size=2 + 6 * accelerator.process_index)
    assert worst_difference(loaded.model, PROMPTS, groups) < 1e-4
    total = accelerator.reduce(torch.tensor(len(groups[0])))
    print("of two", int(total), accelerator.num_processes)
"""


def test_of_two_processes_each_has_its_engine(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(TWO_PROCESSES)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port()), str(script)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, timeout=240)
    assert answer.stdout.splitlines() == ["of two 10 2"] * 2


def check_fails_within(seconds: float, client: TrainedSampler, loaded: LoadedModel) -> None:
    started = time.monotonic()
    with pytest.raises(SamplingError, match=r"in time|longer than|check it"):
        client.update_weights(weights_of(loaded.model), 7)
    assert time.monotonic() - started < seconds
    with pytest.raises(SamplingError):
        sample(client)


def test_a_weight_that_the_engine_cannot_take_is_named_by_it(sampler: TrainedSampler, loaded: LoadedModel, next_version: Versions) -> None:
    """vLLM does not recover from this one: keep the test the last."""
    weights = dict(weights_of(loaded.model))
    weights["model.norm.weight"] = torch.ones(7)
    with pytest.raises(SamplingError, match="could not take the new weights"):
        sampler.update_weights(weights.items(), next_version())
