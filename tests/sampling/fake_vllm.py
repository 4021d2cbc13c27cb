"""What stands in for vLLM where it is not installed: a worker with a small model, and a server before it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import torch

from microcoder_core.sampling.vllm_worker import WeightReceiver


class Net(torch.nn.Module):
    """Two layers, one of them under two names."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embed = torch.nn.Linear(4, 3, bias=False)
        self.norm = torch.nn.Linear(2, 2, bias=False)
        self.head = torch.nn.Linear(4, 3, bias=False)
        self.head.weight = self.embed.weight


class Worker(WeightReceiver):
    """What the receiver needs of vLLM's worker; `load` is how the engine takes weights."""

    def __init__(self, load: Callable[[Net, Iterable[tuple[str, torch.Tensor]]], object]) -> None:
        self.net = Net(0)
        self.names: list[str] = []
        self._load = load
        self.model_runner = SimpleNamespace(get_model=lambda: self.net)
        config = SimpleNamespace(dtype=torch.float32, logprobs_mode="processed_logprobs", max_model_len=9, get_vocab_size=lambda: 4)
        self.vllm_config = SimpleNamespace(model_config=config)

    def reload_weights(self, weights_iterator: Iterable[tuple[str, torch.Tensor]]) -> None:
        self._load(self.net, weights_iterator)


def loads(net: Net, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
    net.load_state_dict(dict(weights), strict=False)


class FakeServer:
    """The paths of a vLLM server that the client asks. Tests replace `answers`: path -> function of the request's body.

    A completion is `seed % 5` tokens long, at least 1, and ends with token 1, or with the limit where that comes first.
    """

    def __init__(self) -> None:
        self.worker = Worker(loads)
        self.asked: list[tuple[str, Any]] = []
        self.headers: list[str | None] = []
        self.resets = iter([False])
        self.answers: dict[str, Callable[[Any], Any]] = {
            "/health": lambda _: {},
            "/v1/models": lambda _: {"data": [{"id": "the model"}]},
            "/collective_rpc": lambda body: {"results": [getattr(self.worker, body["method"])(*body["args"])]},
            "/reset_prefix_cache": lambda _: {"success": next(self.resets, True)},
            "/v1/completions": self.complete,
        }

    def complete(self, body: Any) -> Any:
        length = min(max(1, body["seed"] % 5), body["max_tokens"])
        ends = length < body["max_tokens"]
        token_ids = [*range(2, 2 + length - ends), *([1] * ends)]
        logprobs = None if body["logprobs"] is None else {"token_logprobs": [-0.5] * length}
        time.sleep(0.01 * length)
        return {"choices": [{"token_ids": token_ids, "logprobs": logprobs, "finish_reason": "stop" if ends else "length"}]}


@contextmanager
def running(server: FakeServer) -> Iterator[str]:
    """The address of a fake server while it runs."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.do_POST()

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or "null")
            server.asked.append((self.path, body))
            server.headers.append(self.headers.get("Authorization"))
            try:
                status, answer = 200, server.answers[self.path](body)
            except KeyError:
                status, answer = 404, {"detail": "Not Found"}
            except Exception as error:
                status, answer = 500, {"error": {"message": f"{type(error).__name__}: {error}"}}
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass

    with Quiet(("127.0.0.1", 0), Handler) as http:
        threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{http.server_address[1]}"
        finally:
            http.shutdown()


def prompts(count: int) -> Sequence[Sequence[int]]:
    """Short prompts."""
    return [[2, 3, number % 4] for number in range(count)]
