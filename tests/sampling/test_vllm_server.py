"""The client of a vLLM server, against one that stands in for it: what it asks, and what it makes of bad answers."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from microcoder_core.errors import InputError, SamplingError
from microcoder_core.records import Completion
from microcoder_core.sampling.base import prompt_seeds
from microcoder_core.sampling.config import SamplerConfig
from microcoder_core.sampling.vllm_guard import TokenGuard
from microcoder_core.sampling.vllm_server import VllmServerSampler
from tests.sampling.fake_vllm import FakeServer, Net, loads, prompts, running
from tests.tiny import TinyTokenizer


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


@pytest.fixture
def url(server: FakeServer) -> Iterator[str]:
    with running(server) as url:
        yield url


def client(url: str, vocabulary: int = 4, **settings: Any) -> VllmServerSampler:
    config = SamplerConfig.model_validate({"kind": "vllm_server", "url": url, "sync_deadline_s": 5.0, "max_rows": 4, **settings})
    return VllmServerSampler(config, TinyTokenizer(), end_tokens=frozenset({1}), vocabulary=vocabulary)


def sample(one: VllmServerSampler, count: int = 3, **changes: Any) -> list[list[Completion]]:
    settings = {"group_size": 4, "temperature": 1.2, "max_new_tokens": 4, "seeds": prompt_seeds((0,), count)} | changes
    return one.sample(prompts(count), **settings)


def send(one: VllmServerSampler, version: int = 1, seed: int = 1) -> None:
    one.update_weights(Net(seed).state_dict().items(), version)


def asked(server: FakeServer, path: str) -> list[Any]:
    return [body for where, body in server.asked if where == path]


def test_completions_come_back_in_their_places_and_are_handed_over_once(server: FakeServer, url: str) -> None:
    seen: dict[tuple[int, int], Completion] = {}
    with client(url) as one:
        send(one, version=7)
        groups = sample(one, on_finished=lambda prompt, number, completion: seen.update({(prompt, number): completion}))
    assert seen == {(prompt, number): completion for prompt, group in enumerate(groups) for number, completion in enumerate(group)}
    completions = [completion for group in groups for completion in group]
    assert {completion.finish_reason for completion in completions} == {"stop", "length"}
    for completion in completions:
        assert (completion.policy_version, completion.temperature) == (7, 1.2)
        assert completion.logprobs == (-0.5,) * len(completion.token_ids)
        assert "!" not in completion.text  # token 1, which ended it


def test_a_request_has_its_own_seed_and_no_truncation(server: FakeServer, url: str) -> None:
    with client(url) as one:
        send(one)
        sample(one)
        first = asked(server, "/v1/completions")
        sample(one)
    assert len({body["seed"] for body in first}) == 12
    assert sorted(body["seed"] for body in first) == sorted(body["seed"] for body in asked(server, "/v1/completions")[12:])
    for body in first:
        assert (body["model"], body["stop_token_ids"], body["temperature"], body["logprobs"]) == ("the model", [1], 1.2, 0)
        assert (body["top_p"], body["top_k"], body["min_p"], body["repetition_penalty"]) == (1.0, 0, 0.0, 1.0)


def test_greedy_completions_have_no_logprobs(url: str) -> None:
    with client(url) as one:
        send(one)
        assert sample(one, temperature=0.0)[0][0].logprobs is None


def test_no_more_completions_are_asked_for_at_once_than_max_rows(server: FakeServer, url: str) -> None:
    now, most = 0, 0
    lock = threading.Lock()

    def counted(body: Any) -> Any:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        try:
            return server.complete(body)
        finally:
            with lock:
                now -= 1

    server.answers["/v1/completions"] = counted
    with client(url, max_rows=3) as one:
        send(one)
        sample(one)
    assert most == 3


def test_a_completion_is_handed_over_while_others_are_written(server: FakeServer, url: str) -> None:
    release = threading.Event()

    def slow(body: Any) -> Any:
        if body["prompt"][-1] == 0:
            release.wait(10)
        return server.complete(body)

    server.answers["/v1/completions"] = slow
    with client(url, max_rows=12) as one:
        send(one)
        sample(one, on_finished=lambda prompt, number, completion: release.set() if prompt else None)
    assert release.is_set()


def test_weights_go_through_the_folder_which_is_empty_afterwards(server: FakeServer, url: str, tmp_path: Path) -> None:
    with client(url, sync_folder=tmp_path / "sync") as one:
        send(one, seed=3)
    assert (server.worker.net.norm.weight == Net(3).norm.weight).all()
    (file,) = [body["args"][0] for body in asked(server, "/collective_rpc") if body["method"] == "microcoder_receive_file"]
    assert Path(file).parent == tmp_path / "sync"
    assert list((tmp_path / "sync").iterdir()) == []
    assert len(asked(server, "/reset_prefix_cache")) == 2  # the first time it was in use


def test_the_version_that_the_server_has_is_not_sent_again(server: FakeServer, url: str) -> None:
    with client(url) as one:
        send(one)
        one.update_weights(iter([pytest.fail] * 0), 1)
        send(one, version=2)
    assert len(asked(server, "/reset_prefix_cache")) == 3


def test_without_weights_nothing_is_sampled(url: str) -> None:
    with client(url) as one, pytest.raises(SamplingError, match="got no weights"):
        sample(one)


def test_a_server_that_was_started_anew_is_noticed_before_and_after(server: FakeServer, url: str) -> None:
    with client(url) as one:
        send(one)
        server.worker = FakeServer().worker
        with pytest.raises(SamplingError, match="no longer has the weights that it was sent: it was started anew"):
            sample(one)
        send(one, version=2)
        with pytest.raises(SamplingError, match="no longer has the weights"):
            sample(one, on_finished=lambda *_: setattr(server, "worker", FakeServer().worker))


def test_another_run_s_sync_is_noticed(url: str) -> None:
    with client(url) as one, client(url) as other:
        send(one)
        send(other)
        with pytest.raises(SamplingError, match="another run uses it"):
            sample(one)


@pytest.mark.parametrize(
    ("load", "complaint"),
    [
        (lambda net, weights: None, "arrived at the engine otherwise"),
        (lambda net, weights: list(weights) and None, "goes on with others"),
        (lambda net, weights: 1 / 0, "could not take the new weights: ZeroDivisionError"),
    ],
)
def test_a_sync_that_does_not_reach_the_model_is_noticed(server: FakeServer, url: str, load: Any, complaint: str) -> None:
    with client(url) as one:
        server.worker._load = load
        with pytest.raises(SamplingError, match=complaint):
            send(one)
        with pytest.raises(SamplingError, match="got no weights, or not all of them"):
            sample(one)
        server.worker._load = loads
        send(one)  # the version that failed is sent again
        sample(one)


def test_a_sync_that_hangs_ends_at_the_deadline(server: FakeServer, url: str) -> None:
    never = threading.Event()
    with client(url, sync_deadline_s=0.5) as one:
        server.worker._load = lambda net, weights: never.wait(10)
        started = time.monotonic()
        with pytest.raises(SamplingError, match=r"in time|longer than 0\.5 s"):
            send(one)
        assert time.monotonic() - started < 3
        never.set()


def test_a_prefix_cache_that_stays_in_use_ends_at_the_deadline(server: FakeServer, url: str) -> None:
    server.answers["/reset_prefix_cache"] = lambda _: {"success": False}
    with client(url, sync_deadline_s=1.0) as one, pytest.raises(SamplingError, match=r"computed with the old weights|longer than 1 s"):
        send(one)


def test_a_server_that_is_gone_is_an_error_at_once(server: FakeServer) -> None:
    with running(server) as url, client(url) as one:
        send(one)
        one.config = one.config.model_copy(update={"url": dead_url()})
        one._http.base_url = one.config.url
        with pytest.raises(SamplingError, match="check it, then run again"):
            send(one, version=2)


def test_a_server_that_never_answers_is_waited_for_until_the_deadline() -> None:
    started = time.monotonic()
    with pytest.raises(SamplingError, match=r"no server answers within 0\.5 s .* start one with `microcoder serve-model`"):
        client(dead_url(), sync_deadline_s=0.5).__enter__()
    assert time.monotonic() - started < 3


def dead_url() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{one.getsockname()[1]}"


def test_a_server_that_ends_no_completion_is_given_up(server: FakeServer, url: str) -> None:
    never = threading.Event()
    server.answers["/v1/completions"] = lambda body: never.wait(10)
    with client(url, stall_deadline_s=0.3) as one:
        send(one)
        with pytest.raises(SamplingError, match=r"ended no completion for 0\.3 s"):
            sample(one)
        never.set()


def with_choice(**changes: Any) -> dict[str, Any]:
    return {"choices": [{"token_ids": [2, 1], "logprobs": {"token_logprobs": [-1.0, -1.0]}, "finish_reason": "stop"} | changes]}


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (with_choice(finish_reason="abort"), "the engine ended a completion for 'abort'"),
        (with_choice(token_ids=[2, 3]), "the engine ended a completion for 'stop'"),
        (with_choice(logprobs={"token_logprobs": [-1.0]}), "gave 1 log-probabilities for 2 tokens"),
        (with_choice(logprobs={"token_logprobs": [-1.0, float("nan")]}), "logits are not finite"),
        (with_choice(logprobs=None), "as a server of this version would"),
        ({"choices": []}, "as a server of this version would"),
    ],
)
def test_an_answer_that_cannot_be_trained_on_is_refused(server: FakeServer, url: str, answer: Any, complaint: str) -> None:
    server.answers["/v1/completions"] = lambda body: answer
    with client(url) as one:
        send(one)
        with pytest.raises(SamplingError, match=complaint):
            sample(one)


def test_what_a_server_says_against_a_prompt_is_passed_on(server: FakeServer, url: str) -> None:
    server.answers["/v1/completions"] = lambda body: 1 / 0
    with client(url) as one:
        send(one)
        with pytest.raises(SamplingError, match=r"refuses a prompt \(status 500: .*division by zero"):
            sample(one)


def test_a_prompt_that_does_not_fit_is_refused_before_it_is_sent(server: FakeServer, url: str) -> None:
    with client(url) as one:
        send(one)
        with pytest.raises(InputError, match="do not fit into the server's 9; lower it or start the server with a larger --max-model-len"):
            sample(one, max_new_tokens=7)
    assert asked(server, "/v1/completions") == []


def test_a_plain_vllm_server_is_refused_with_what_to_start_instead(server: FakeServer, url: str) -> None:
    del server.answers["/collective_rpc"]
    with pytest.raises(SamplingError, match=r"cannot take weights \(status 404: .*`microcoder serve-model`"):
        client(url).__enter__()


def test_a_server_that_gives_other_logprobs_is_refused(server: FakeServer, url: str) -> None:
    server.worker.vllm_config.model_config.logprobs_mode = "raw_logprobs"
    with pytest.raises(SamplingError, match="gives raw_logprobs, not processed_logprobs"):
        client(url).__enter__()


def test_a_server_of_another_model_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="serves the model with 4 tokens, the model has 64"):
        client(url, vocabulary=64).__enter__()


def test_the_token_goes_with_every_request(server: FakeServer, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "secret")
    with client(url) as one:
        send(one)
        sample(one)
    assert set(server.headers) == {"Bearer secret"}


@pytest.mark.parametrize(
    ("token", "path", "header", "status"),
    [
        (None, "/collective_rpc", None, 200),
        ("secret", "/collective_rpc", b"Bearer secret", 200),
        ("secret", "/health", None, 200),
        ("secret", "/collective_rpc", None, 401),
        ("secret", "/v1/models", b"Bearer other", 401),
    ],
)
def test_a_guarded_server_asks_for_the_token_on_every_path(
    monkeypatch: pytest.MonkeyPatch, token: str | None, path: str, header: bytes | None, status: int
) -> None:
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    if token:
        monkeypatch.setenv("VLLM_API_KEY", token)
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"status": 200})

    async def keep(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "path": path, "headers": [(b"authorization", header)] if header else []}
    asyncio.run(TokenGuard(app)(scope, None, keep))  # type: ignore[arg-type]
    assert sent[0]["status"] == status


TWO_PROCESSES = """
import sys
import torch.distributed as dist
from microcoder_core.errors import SamplingError
from tests.sampling.fake_vllm import Net, loads
from tests.sampling.test_vllm_server import client, sample

url, rank, store = sys.argv[1], int(sys.argv[2]), sys.argv[3]
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
with client(url) as one:
    asked = []
    one.update_weights(((name, asked.append(name) or weight) for name, weight in Net(1).state_dict().items()), 1)
    sample(one)
    try:
        one.update_weights([], 2)
    except SamplingError as error:
        print(len(asked), error)
"""


@pytest.mark.slow
def test_of_two_processes_the_first_sends_and_both_learn_how_it_went(server: FakeServer, url: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", TWO_PROCESSES, url]
    processes = [
        subprocess.Popen([*command, str(rank), str(tmp_path / "store")], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
        for rank in (0, 1)
    ]
    answers = [process.communicate(timeout=120)[0] for process in processes]
    assert answers == ["3 there were no weights to send\n"] * 2
    assert len([body for body in asked(server, "/collective_rpc") if body["method"] == "microcoder_receive_file"]) == 2
    assert len(asked(server, "/v1/completions")) == 24
