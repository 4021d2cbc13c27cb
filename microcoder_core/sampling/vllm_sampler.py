"""Sampling with a vLLM engine in this process, which gets the trainer's weights in place.

The engine is stepped here, so that a completion is handed on as it ends; draws come from a generator a request, seeded by the prompt's
seed and the sample's number.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import uuid
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from microcoder_core.errors import InputError, MicrocoderError, SamplingError
from microcoder_core.records import Completion
from microcoder_core.sampling.base import OnFinished
from microcoder_core.sampling.completions import check_finite, checked_finish, completion_of, engine_seed
from microcoder_core.sampling.config import SamplerConfig
from microcoder_core.sampling.models import LoadedModel
from microcoder_core.sampling.transformers_sampler import end_token_ids
from microcoder_core.sampling.vllm_worker import EXTENSION, PROCESSED_LOGPROBS
from microcoder_core.sampling.weight_sync import EngineState, Fingerprinted, check_arrival, within

_QUIET = {
    "VLLM_CONFIGURE_LOGGING": "1",
    "VLLM_LOGGING_LEVEL": "CRITICAL",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "VLLM_NO_USAGE_STATS": "1",
}
"""Unless the environment says otherwise: stdout is for results, errors are raised, and nothing is reported to anybody."""

_UNFINISHED = "an unfinished sync"
"""Stands for the id of a sync until that has ended well, so that a sync which ends after its deadline is not taken for one in time."""

_WEIGHTS, _CACHE = "weights", "kv_cache"
"""vLLM's names for what it can let sleep."""


class VllmSampler:
    """Samples from a vLLM engine in this process. `open_vllm_sampler` makes one.

    Args:
        llm: A `vllm.LLM` in this process, with the worker extension `EXTENSION`.
        tokenizer: Gives the text.
        end_tokens: Each ends a completion.
        sleep: Whether the engine sleeps while nothing is sampled.
        sync_deadline_s: How long it may take to get new weights.
    """

    def __init__(self, llm: Any, tokenizer: Any, *, end_tokens: frozenset[int], sleep: bool, sync_deadline_s: float) -> None:
        self.tokenizer = tokenizer
        self.end_token_ids = end_tokens
        self._llm = llm
        self._sleeps = sleep
        self._asleep: set[str] = set()
        self._sync_deadline_s = sync_deadline_s
        self._policy_version: int | None = None
        self._sync_id = ""
        self._requests = 0
        self._fall_asleep()

    @property
    def shares_model(self) -> bool:
        """See `TrainedSampler.shares_model`."""
        return False

    def update_weights(self, weights: Iterable[tuple[str, torch.Tensor]], policy_version: int) -> None:
        """See `TrainedSampler.update_weights`; asks for none where the engine has those of this version already."""
        if policy_version == self._policy_version:
            return
        sync_id = uuid.uuid4().hex
        self._policy_version, self._sync_id = None, _UNFINISHED
        within(self._sync_deadline_s, lambda: self._send(weights, sync_id), "the sync of weights with vLLM")
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
        """See `Sampler.sample`. Before a first `update_weights` the weights are those of the model's folder."""
        self._wake_up(_WEIGHTS, _CACHE)
        self._check_weights()
        places: dict[str, tuple[int, int]] = {}
        done: dict[tuple[int, int], Completion] = {}
        try:
            for prompt, token_ids in enumerate(prompts):
                for number in range(group_size):
                    seed = engine_seed(seeds[prompt], number)
                    places[self._add(token_ids, seed, temperature, max_new_tokens)] = prompt, number
            while places:
                for output in self._step():
                    prompt, number = places.pop(output.request_id)
                    done[prompt, number] = self._completion(output.outputs[0], temperature, max_new_tokens)
                    if on_finished:
                        on_finished(prompt, number, done[prompt, number])
        finally:
            if places:
                self._llm.llm_engine.abort_request(list(places))
        self._fall_asleep()
        return [[done[prompt, number] for number in range(group_size)] for prompt in range(len(prompts))]

    def close(self) -> None:
        """Ends the engine and frees its memory."""
        self._llm.llm_engine.engine_core.shutdown()

    def _send(self, weights: Iterable[tuple[str, torch.Tensor]], sync_id: str) -> None:
        with _engine_errors("the sync of weights failed"):
            self._wake_up(_WEIGHTS)
            sending = Fingerprinted(weights, self._llm.llm_engine.vllm_config.model_config.dtype)
            passing = iter(sending)
            answers = self._llm.collective_rpc("microcoder_receive", args=(passing, sync_id))
            for _ in passing:  # what the engine did not ask for counts as sent
                pass
            check_arrival([EngineState.model_validate(answer) for answer in answers], sending.seen, sync_id)
            if not self._llm.reset_prefix_cache():
                raise SamplingError("vLLM kept what it had computed with the old weights: its prefix cache is in use")

    def _check_weights(self) -> None:
        """Raises SamplingError where the last sync did not end well, or the engine has other weights since."""
        with _engine_errors("it does not say which weights it has"):
            has = {EngineState.model_validate(answer).sync_id for answer in self._llm.collective_rpc("microcoder_state")}
        if has != {self._sync_id}:
            raise SamplingError("the engine does not have the weights of the last sync; run again (training: with --resume)")

    def _add(self, token_ids: Sequence[int], seed: int, temperature: float, max_new_tokens: int) -> str:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        room = self._llm.llm_engine.vllm_config.model_config.max_model_len
        if len(token_ids) + max_new_tokens > room:
            raise InputError(
                f"max_new_tokens: a prompt of {len(token_ids)} tokens and {max_new_tokens} new ones do not fit into the engine's {room}; "
                "lower it or raise sampler.max_positions"
            )
        self._requests += 1
        name = str(self._requests)
        settings = SamplingParams(
            temperature=temperature,
            max_tokens=max_new_tokens,
            seed=seed,
            stop_token_ids=sorted(self.end_token_ids),
            logprobs=0 if temperature > 0 else None,
            flat_logprobs=True,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        with _engine_errors("it refuses a prompt"):
            self._llm.llm_engine.add_request(name, {"prompt_token_ids": list(token_ids)}, settings)
        return name

    def _step(self) -> list[Any]:
        with _engine_errors("it cannot go on"):
            return [output for output in self._llm.llm_engine.step() if output.finished]

    def _completion(self, output: Any, temperature: float, max_new_tokens: int) -> Completion:
        token_ids = list(output.token_ids)
        logprobs = []
        if temperature > 0:
            logprobs = [output.logprobs[position][token].logprob for position, token in enumerate(token_ids)]
            check_finite(logprobs)
        return completion_of(
            self.tokenizer,
            token_ids,
            logprobs,
            checked_finish(output.finish_reason, token_ids, max_new_tokens, self.end_token_ids),
            temperature=temperature,
            policy_version=self._policy_version or 0,
        )

    def _fall_asleep(self) -> None:
        if self._sleeps and not self._asleep:
            self._llm.sleep(level=1)
            self._asleep = {_WEIGHTS, _CACHE}

    def _wake_up(self, *parts: str) -> None:
        """Wakes those of `parts` that are asleep: the cache only once it is needed, since it is the larger one."""
        if wanted := sorted(self._asleep.intersection(parts)):
            self._llm.wake_up(tags=wanted)
            self._asleep.difference_update(wanted)


@contextlib.contextmanager
def open_vllm_sampler(config: SamplerConfig, loaded: LoadedModel) -> Iterator[VllmSampler]:
    """A sampler with an engine of its own beside `loaded`, in its compute dtype; the engine ends with the block.

    With several processes each has its engine, and all of them must come here.

    Raises:
        InputError: vLLM is not installed, or `sampler.sleep` without CUDA.
        SamplingError: The engine does not start; says what vLLM said.
    """
    _check_place(config)
    llm = _start(config, loaded)
    sampler = VllmSampler(
        llm,
        loaded.tokenizer,
        end_tokens=end_token_ids(loaded.model, loaded.tokenizer),
        sleep=config.sleep,
        sync_deadline_s=config.sync_deadline_s,
    )
    try:
        yield sampler
    finally:
        sampler.close()


def _check_place(config: SamplerConfig) -> None:
    if importlib.util.find_spec("vllm") is None:
        raise InputError(
            "sampler.kind: vllm needs the package vllm, which is not installed; `pip install 'microcoder[vllm]'` (CUDA); for a CPU see "
            "Samplers in docs/training.md"
        )
    if config.sleep and not torch.cuda.is_available():
        raise InputError("sampler.sleep: needs a CUDA device, got none; leave it out")


def _num_processes() -> int:
    """Processes of the run. Where there are several, they are joined here, before vLLM takes this one for the only one."""
    from accelerate import PartialState

    return int(PartialState(cpu=not torch.cuda.is_available()).num_processes)


def _start(config: SamplerConfig, loaded: LoadedModel) -> Any:
    on_cpu, num_processes = not torch.cuda.is_available(), _num_processes()
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # the engine in this process, where weights need no copy
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    with _engine_errors("it does not start"), _process_as_before():
        from vllm import LLM

        return LLM(
            loaded.name,
            dtype=str(loaded.compute_dtype).removeprefix("torch."),
            max_num_seqs=config.max_rows,
            max_model_len=config.max_positions,
            gpu_memory_utilization=config.gpu_memory_utilization,
            kv_cache_memory_bytes=int(config.cpu_cache_gib * (1 << 30)) if on_cpu else None,
            enforce_eager=on_cpu,  # compiling takes minutes there and gains little
            enable_chunked_prefill=not on_cpu,  # see CPU_OPTIONS
            enable_sleep_mode=config.sleep,
            logprobs_mode=PROCESSED_LOGPROBS,
            generation_config="vllm",  # no top-p, top-k or temperature of the model's own
            skip_tokenizer_init=True,
            distributed_executor_backend="external_launcher" if num_processes > 1 else None,  # an engine a process
            worker_extension_cls=EXTENSION,
            use_tqdm_on_load=False,
        )


@contextlib.contextmanager
def _process_as_before() -> Iterator[None]:
    """Undoes what an engine's start does to this process beside its own: environment, torch's threads, warnings as errors."""
    environment, threads, set_threads = dict(os.environ), torch.get_num_threads(), torch.set_num_threads
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for name in {*os.environ} - {*environment}:
            if not name.startswith("VLLM_"):
                del os.environ[name]
        os.environ.update(environment)
        torch.set_num_threads = set_threads
        torch.set_num_threads(threads)


@contextlib.contextmanager
def _engine_errors(what: str) -> Iterator[None]:
    """Turns whatever vLLM raises into a SamplingError."""
    try:
        yield
    except (MicrocoderError, InputError):
        raise
    except Exception as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())[:500]
        raise SamplingError(f"vLLM: {what} ({said})") from error
