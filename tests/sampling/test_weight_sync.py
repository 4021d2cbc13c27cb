"""Weights on their way to an engine: what is noticed when they do not arrive."""

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch

from microcoder_core.errors import SamplingError
from microcoder_core.sampling.completions import checked_finish, engine_seed
from microcoder_core.sampling.weight_sync import EngineState, Fingerprinted, check_arrival, fingerprint, within
from tests.sampling.fake_vllm import Net, Worker, loads


def stops_early(net: Net, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
    net.load_state_dict(dict([next(iter(weights))]), strict=False)


def takes_and_forgets(net: Net, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
    list(weights)


def does_nothing(net: Net, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
    pass


def raises(net: Net, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
    raise ValueError("no such weight")


def sync(worker: Worker, weights: Iterable[tuple[str, torch.Tensor]], dtype: torch.dtype | None = None) -> None:
    sending = Fingerprinted(weights, dtype)
    passing = iter(sending)
    answer = worker.microcoder_receive(passing, "sync 1")
    list(passing)
    check_arrival([EngineState.model_validate(answer)], sending.seen, "sync 1")


def test_weights_that_arrive_are_in_use_and_known_by_the_id_of_their_sync() -> None:
    worker = Worker(loads)
    sync(worker, Net(1).state_dict().items())
    assert torch.equal(worker.net.norm.weight, Net(1).norm.weight)
    assert worker.microcoder_state()["sync_id"] == "sync 1"


@pytest.mark.parametrize(
    ("load", "complaint"),
    [
        (does_nothing, r"arrived at the engine otherwise than they were sent: embed\.weight, head\.weight, norm\.weight \(3 in all\)"),
        (stops_early, "arrived at the engine otherwise than they were sent: head.weight, norm.weight"),
        (takes_and_forgets, r"goes on with others: embed\.weight"),
        (raises, "could not take the new weights: ValueError: no such weight"),
    ],
)
def test_a_sync_that_is_not_whole_is_noticed(load: Callable[..., None], complaint: str) -> None:
    worker = Worker(load)
    with pytest.raises(SamplingError, match=complaint):
        sync(worker, Net(1).state_dict().items())


def test_after_a_sync_that_failed_the_engine_claims_no_weights() -> None:
    worker = Worker(loads)
    sync(worker, Net(1).state_dict().items())
    worker._load = raises
    with pytest.raises(SamplingError):
        sync(worker, Net(2).state_dict().items())
    assert worker.microcoder_state()["sync_id"] == ""


def test_another_sync_s_weights_are_not_taken_for_ours() -> None:
    answer = EngineState.model_validate(Worker(loads).microcoder_state())
    with pytest.raises(SamplingError, match="has the weights it started with after ours were sent"):
        check_arrival([answer], {"w": fingerprint(torch.ones(1))}, "ours")


def test_a_sync_of_no_weights_is_none() -> None:
    with pytest.raises(SamplingError, match="no weights to send"):
        sync(Worker(loads), [])


def test_a_tied_weight_that_comes_under_one_name_is_loaded_under_both() -> None:
    worker = Worker(lambda net, weights: worker.names.extend(name for name, _ in weights))
    weights = [(name, weight) for name, weight in Net(1).state_dict().items() if name != "head.weight"]
    worker.microcoder_receive(weights, "sync 1")
    assert worker.names == ["embed.weight", "norm.weight", "head.weight"]


def test_weights_go_in_the_engine_s_dtype() -> None:
    worker = Worker(loads)
    worker.net.to(torch.bfloat16)
    sync(worker, Net(1).state_dict().items(), torch.bfloat16)


def test_a_file_that_cannot_be_read_is_an_answer_not_an_exception(tmp_path: Any) -> None:
    answer = EngineState.model_validate(Worker(loads).microcoder_receive_file(str(tmp_path / "none"), "sync 1"))
    assert "none" in answer.error


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int8])
def test_a_fingerprint_tells_the_smallest_change_in_any_layout(dtype: torch.dtype) -> None:
    weight = torch.arange(12).reshape(3, 4).to(dtype)
    assert fingerprint(weight.t().contiguous().t()) == fingerprint(weight)
    other = weight.clone()
    other.view(-1)[3] = torch.nextafter(other[0, 3], other[1, 3]) if dtype.is_floating_point else 4
    assert fingerprint(other) != fingerprint(weight)
    assert fingerprint(weight.reshape(4, 3)) != fingerprint(weight)


def test_work_that_takes_too_long_is_left_behind() -> None:
    never = threading.Event()
    started = time.monotonic()
    with pytest.raises(SamplingError, match=r"the sync took longer than 0\.1 s"):
        within(0.1, lambda: never.wait(5), "the sync")
    assert time.monotonic() - started < 2
    never.set()


def test_work_in_time_gives_its_result_or_its_own_error() -> None:
    def fails() -> None:
        raise TimeoutError("its own")

    assert within(5, lambda: 3, "the sync") == 3
    with pytest.raises(TimeoutError, match="its own"):
        within(5, fails, "the sync")


def test_a_sample_s_seed_is_fixed_by_the_prompt_s_and_its_number() -> None:
    seeds = [engine_seed(seed, sample) for seed in ((0, 1), (0, 2), (1, 1)) for sample in range(50)]
    assert len(set(seeds)) == 150
    assert all(0 <= seed < 1 << 63 for seed in seeds)
    assert engine_seed((0, 1), 0) == seeds[0]


@pytest.mark.parametrize(("reason", "tokens"), [("stop", (4, 5)), ("stop", ()), ("length", (4, 5)), ("abort", (1,)), (None, (1,))])
def test_a_finish_reason_that_the_tokens_belie_is_refused(reason: str | None, tokens: tuple[int, ...]) -> None:
    with pytest.raises(SamplingError, match="the engine ended a completion for"):
        checked_finish(reason, tokens, 3, frozenset({1}))
    assert checked_finish("stop", (4, 1), 3, frozenset({1})) == "stop"
    assert checked_finish("length", (4, 5, 6), 3, frozenset({1})) == "length"
