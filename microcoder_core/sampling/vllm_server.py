"""Sampling from a vLLM server that `microcoder serve-model` started, here or on another machine.

Each completion is a request of its own, so that it is handed on as it ends. Weights go as a safetensors file through a folder that both
sides see; the server's worker takes them in place and says what it has.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import torch
from pydantic import ValidationError

from microcoder_core.errors import InputError, SamplingError
from microcoder_core.records import Completion
from microcoder_core.sampling.base import OnFinished
from microcoder_core.sampling.completions import check_finite, checked_finish, completion_of, engine_seed
from microcoder_core.sampling.config import TOKEN_VARIABLE, SamplerConfig
from microcoder_core.sampling.vllm_worker import PROCESSED_LOGPROBS
from microcoder_core.sampling.weight_sync import EngineState, Fingerprinted, check_arrival, within

logger = logging.getLogger(__name__)

_NO_TRUNCATION = {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
"""Said in every request: a server may have other defaults."""

_PAUSE_S = 0.2
_ANSWER_S = 60.0
"""For what a server answers without work. Chosen: a server that is writing many completions is slow to answer."""

_Job = tuple[tuple[int, int], dict[str, Any]]


class VllmServerSampler:
    """Samples from a vLLM server. Use as a context manager.

    Args:
        config: Settings with `url`.
        tokenizer: Gives the text.
        end_tokens: Each ends a completion.
        vocabulary: Tokens of the model that is to be served.

    Raises:
        SamplingError: On entering: no server there within `sync_deadline_s`, or none that `microcoder serve-model` started.
        InputError: On entering: it serves a model with another vocabulary.
    """

    def __init__(self, config: SamplerConfig, tokenizer: Any, *, end_tokens: frozenset[int], vocabulary: int) -> None:
        if config.url is None:
            raise ValueError("a client needs a url")
        self.config = config
        self.tokenizer = tokenizer
        self.end_token_ids = end_tokens
        self._vocabulary = vocabulary
        self._model = ""
        self._state: EngineState | None = None
        self._policy_version: int | None = None
        self._sync_id: str | None = None
        token = os.environ.get(TOKEN_VARIABLE)
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.Client(base_url=config.url, headers=self._headers, timeout=_ANSWER_S)

    def __enter__(self) -> Self:
        try:
            self._await_server()
            with self._server_errors("names no model"):
                self._model = self._http.get("/v1/models").raise_for_status().json()["data"][0]["id"]
            self._state = self._states("microcoder_state", (), min(_ANSWER_S, self.config.sync_deadline_s))[0]
            if self._state.logprobs_mode != PROCESSED_LOGPROBS:
                raise SamplingError(f"{self._what}: gives {self._state.logprobs_mode}, not {PROCESSED_LOGPROBS}; {_HOW}")
            if self._state.vocabulary != self._vocabulary:
                raise InputError(
                    f"sampler.url: {self.config.url} serves {self._model} with {self._state.vocabulary} tokens, the model has "
                    f"{self._vocabulary}; serve the model that is trained"
                )
        except BaseException:
            self._http.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._http.close()

    @property
    def shares_model(self) -> bool:
        """See `TrainedSampler.shares_model`."""
        return False

    def update_weights(self, weights: Iterable[tuple[str, torch.Tensor]], policy_version: int) -> None:
        """See `TrainedSampler.update_weights`; asks for none where the server has those of this version already.

        With several processes the first one sends, and all of them learn how that went.
        """
        if policy_version == self._policy_version:
            return
        self._policy_version = self._sync_id = None
        if _rank() == 0:
            outcome = self._try_to_send(weights)
        else:
            for _ in weights:  # each process has a part in computing them
                pass
            outcome = None
        sync_id, complaint = _from_first_process(outcome)
        if complaint:
            raise SamplingError(complaint)
        self._policy_version, self._sync_id = policy_version, sync_id

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        seeds: Sequence[Sequence[int]],
        group_size: int,
        temperature: float,
        max_new_tokens: int,
        on_finished: OnFinished | None = None,
    ) -> list[list[Completion]]:
        """See `Sampler.sample`. The weights are those of the last `update_weights`, without which it refuses."""
        self._check_weights()
        jobs = [
            ((prompt, number), self._request(token_ids, engine_seed(seeds[prompt], number), temperature, max_new_tokens))
            for prompt, token_ids in enumerate(prompts)
            for number in range(group_size)
        ]
        done = asyncio.run(self._sample(jobs, temperature, max_new_tokens, on_finished))
        self._check_weights()  # a server that was started anew meanwhile wrote with the weights that it started with
        return [[done[prompt, number] for number in range(group_size)] for prompt in range(len(prompts))]

    def _await_server(self) -> None:
        """Returns once the server says that it is well."""
        deadline = time.monotonic() + self.config.sync_deadline_s
        is_awaited = False
        while True:
            try:
                self._http.get("/health", timeout=max(0.1, min(_ANSWER_S, deadline - time.monotonic()))).raise_for_status()
            except httpx.HTTPError as error:
                if not is_awaited:
                    is_awaited = True
                    logger.info("waiting for the server at %s, at most %g s", self.config.url, self.config.sync_deadline_s)
                if time.monotonic() + _PAUSE_S > deadline:
                    raise SamplingError(
                        f"{self._what}: no server answers within {self.config.sync_deadline_s:g} s ({error}); {_HOW}"
                    ) from None
                time.sleep(_PAUSE_S)
            else:
                return

    def _states(self, method: str, args: tuple[str, ...], timeout_s: float) -> list[EngineState]:
        """What each of the server's workers answers."""
        with self._server_errors(f"does not answer {method}"):
            body = {"method": method, "args": args, "timeout": timeout_s}
            answer = self._http.post("/collective_rpc", json=body, timeout=timeout_s)
            if answer.is_error:
                raise SamplingError(f"{self._what}: cannot take weights (status {answer.status_code}: {_said(answer)}); {_HOW}")
            return [EngineState.model_validate(state) for state in answer.json()["results"]]

    def _check_weights(self) -> None:
        """Raises SamplingError where the server does not have the weights that it was sent."""
        if self._sync_id is None:
            raise SamplingError(f"{self._what}: got no weights, or not all of them; run again (training: with --resume)")
        has = {state.sync_id for state in self._states("microcoder_state", (), _ANSWER_S)}
        if has != {self._sync_id}:
            raise SamplingError(
                f"{self._what}: no longer has the weights that it was sent: it was started anew, or another run uses it; "
                "give each run its own server and run again (training: with --resume)"
            )

    def _try_to_send(self, weights: Iterable[tuple[str, torch.Tensor]]) -> tuple[str, str]:
        """The id of the sync, or what went wrong."""
        sync_id = uuid.uuid4().hex
        deadline = time.monotonic() + self.config.sync_deadline_s
        try:
            within(self.config.sync_deadline_s, lambda: self._send(weights, sync_id, deadline), "the sync of weights with the vLLM server")
        except SamplingError as error:
            return sync_id, str(error)
        return sync_id, ""

    def _send(self, weights: Iterable[tuple[str, torch.Tensor]], sync_id: str, deadline: float) -> None:
        assert self._state is not None, "enter it first"
        sending = Fingerprinted(weights, getattr(torch, self._state.dtype))
        with self._folder() as folder:
            file = folder / f"microcoder-{sync_id}.safetensors"
            try:
                written = _write(file, sending)
                states = self._states("microcoder_receive_file", (str(file), sync_id), max(0.1, deadline - time.monotonic()))
            finally:
                file.unlink(missing_ok=True)
        check_arrival(states, {name: sending.seen[name] for name in written}, sync_id)
        self._forget_prefixes(deadline)

    @contextlib.contextmanager
    def _folder(self) -> Iterator[Path]:
        """The folder of the file: the configured one, or one for this file alone that others on this machine may enter."""
        if self.config.sync_folder is not None:
            self.config.sync_folder.mkdir(parents=True, exist_ok=True)
            yield self.config.sync_folder.resolve()
        else:
            with tempfile.TemporaryDirectory(prefix="microcoder-sync-") as folder:
                yield Path(folder)

    def _forget_prefixes(self, deadline: float) -> None:
        """Makes the server forget what it computed with the old weights."""
        with self._server_errors("does not reset its prefix cache"):
            while not self._http.post("/reset_prefix_cache", timeout=_ANSWER_S).raise_for_status().json().get("success", True):
                if time.monotonic() + _PAUSE_S > deadline:
                    raise SamplingError(
                        f"{self._what}: keeps what it computed with the old weights, since it is in use; give it to one run"
                    )
                time.sleep(_PAUSE_S)

    def _request(self, token_ids: Sequence[int], seed: int, temperature: float, max_new_tokens: int) -> dict[str, Any]:
        assert self._state is not None
        if len(token_ids) + max_new_tokens > self._state.max_positions:
            raise InputError(
                f"max_new_tokens: a prompt of {len(token_ids)} tokens and {max_new_tokens} new ones do not fit into the server's "
                f"{self._state.max_positions}; lower it or start the server with a larger --max-model-len"
            )
        return {
            "model": self._model,
            "prompt": list(token_ids),
            "seed": seed,
            "temperature": temperature,
            "max_tokens": max_new_tokens,
            "stop_token_ids": sorted(self.end_token_ids),
            "logprobs": 0 if temperature > 0 else None,
            "return_token_ids": True,
            **_NO_TRUNCATION,
        }

    async def _sample(
        self, jobs: Sequence[_Job], temperature: float, max_new_tokens: int, on_finished: OnFinished | None
    ) -> dict[tuple[int, int], Completion]:
        """A completion for each job, `max_rows` of them at a time."""
        done: dict[tuple[int, int], Completion] = {}
        waiting = list(reversed(jobs))
        assert self.config.url is not None
        limits = httpx.Limits(max_connections=self.config.max_rows)
        async with httpx.AsyncClient(base_url=self.config.url, headers=self._headers, timeout=None, limits=limits) as http:
            working: set[asyncio.Task[tuple[tuple[int, int], Completion]]] = set()
            ended: set[asyncio.Task[tuple[tuple[int, int], Completion]]] = set()
            try:
                while waiting or working:
                    while waiting and len(working) < self.config.max_rows:
                        working.add(asyncio.create_task(self._complete(http, waiting.pop(), temperature, max_new_tokens)))
                    ended, working = await asyncio.wait(working, timeout=self.config.stall_deadline_s, return_when=asyncio.FIRST_COMPLETED)
                    if not ended:
                        raise SamplingError(
                            f"{self._what}: ended no completion for {self.config.stall_deadline_s:g} s (sampler.stall_deadline_s); "
                            "check it, then run again (training: with --resume)"
                        )
                    for task in ended:
                        (prompt, number), completion = task.result()
                        done[prompt, number] = completion
                        if on_finished:
                            on_finished(prompt, number, completion)
            finally:
                for task in working:
                    task.cancel()
                await asyncio.gather(*working, *ended, return_exceptions=True)  # one failure is enough to report
        return done

    async def _complete(
        self, http: httpx.AsyncClient, job: _Job, temperature: float, max_new_tokens: int
    ) -> tuple[tuple[int, int], Completion]:
        place, request = job
        with self._server_errors("cannot complete a prompt"):
            answer = await http.post("/v1/completions", json=request)
            if answer.is_error:
                raise SamplingError(f"{self._what}: refuses a prompt (status {answer.status_code}: {_said(answer)})")
            (choice,) = answer.json()["choices"]
            token_ids = choice["token_ids"]
            logprobs = choice["logprobs"]["token_logprobs"] if temperature > 0 else []
        if len(logprobs) != len(token_ids) * (temperature > 0):
            raise SamplingError(f"{self._what}: gave {len(logprobs)} log-probabilities for {len(token_ids)} tokens")
        check_finite(logprobs)
        finish = checked_finish(choice["finish_reason"], token_ids, max_new_tokens, self.end_token_ids)
        version = self._policy_version or 0
        return place, completion_of(self.tokenizer, token_ids, logprobs, finish, temperature=temperature, policy_version=version)

    @property
    def _what(self) -> str:
        return f"sampler.url: the server at {self.config.url}"

    @contextlib.contextmanager
    def _server_errors(self, what: str) -> Iterator[None]:
        """Turns a failure of the connection, and an answer that cannot be read, into a SamplingError."""
        try:
            yield
        except httpx.TimeoutException:
            raise SamplingError(f"{self._what}: {what} in time; check it, then run again (training: with --resume)") from None
        except httpx.HTTPError as error:
            said = str(error) or type(error).__name__
            raise SamplingError(f"{self._what}: {what} ({said}); check it, then run again (training: with --resume)") from None
        except (KeyError, IndexError, TypeError, ValueError, ValidationError) as error:
            said = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            raise SamplingError(f"{self._what}: {what} as a server of this version would ({said}); {_HOW}") from None


_HOW = "start one with `microcoder serve-model`"


def _said(answer: httpx.Response) -> str:
    return " ".join(answer.text.split())[:300]


def _write(file: Path, weights: Iterable[tuple[str, torch.Tensor]]) -> list[str]:
    """Writes a safetensors file and returns the names in it: of weights that share their memory (tied ones) the first one's alone."""
    from safetensors.torch import save_file

    kept: dict[str, torch.Tensor] = {}
    seen: set[tuple[int, torch.Size]] = set()
    for name, weight in weights:
        here = weight.to("cpu").contiguous()
        place = here.data_ptr(), here.shape
        if place not in seen:
            seen.add(place)
            kept[name] = here
    save_file(kept, file)
    return list(kept)


def _rank() -> int:
    return torch.distributed.get_rank() if _is_distributed() else 0


def _from_first_process(outcome: tuple[str, str] | None) -> tuple[str, str]:
    """What the first of several processes found, in each of them."""
    shared = [outcome]
    if _is_distributed():
        torch.distributed.broadcast_object_list(shared)
    (found,) = shared
    assert found is not None
    return found


def _is_distributed() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()
