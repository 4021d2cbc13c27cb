"""Whether an inference engine has the weights that it was sent, and how long it is waited for.

Covers: weights that did not arrive, or in part, or damaged; an engine that took them and goes on with others; one that was started anew.
Does not cover: weights that an engine keeps under another name or in a form of its own (fused, packed for a CPU's kernels). It is known
that they arrived, not that they are in use.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import TypeVar

import torch

from microcoder_core.errors import SamplingError
from microcoder_core.records import Record

_BIT_TYPES = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

Result = TypeVar("Result")


class Fingerprint(Record):
    """What a tensor is known by."""

    shape: tuple[int, ...]
    bits: int
    """Sum of its elements' bits, read as whole numbers: exact in any order and on any device."""


class EngineState(Record):
    """What an engine says of itself and its weights."""

    sync_id: str
    """Of the last sync that ended well; empty before the first, and while or after one goes wrong."""
    dtype: str
    """Of its weights, such as `float32`."""
    logprobs_mode: str
    max_positions: int
    vocabulary: int
    error: str = ""
    """What went wrong in the sync that this is the answer to."""
    arrived: dict[str, Fingerprint] = {}
    """The weights that the sync brought, as they arrived; only in the answer to a sync."""
    live: dict[str, Fingerprint] = {}
    """The engine's own parameters after the sync; only in the answer to a sync."""


def fingerprint(weight: torch.Tensor) -> Fingerprint:
    """The fingerprint of a tensor."""
    bits = weight.detach().contiguous().view(_BIT_TYPES[weight.element_size()])
    return Fingerprint(shape=tuple(weight.shape), bits=int(bits.sum(dtype=torch.int64)))


class Fingerprinted:
    """Weights that pass by, each in `dtype`, with the fingerprints of those that did.

    Args:
        dtype: Of the tensors that it gives; null leaves them as they are.
    """

    def __init__(self, weights: Iterable[tuple[str, torch.Tensor]], dtype: torch.dtype | None = None) -> None:
        self.seen: dict[str, Fingerprint] = {}
        self._weights = weights
        self._dtype = dtype

    def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
        for name, weight in self._weights:
            passed = weight.detach().to(self._dtype or weight.dtype)
            self.seen[name] = fingerprint(passed)
            yield name, passed


def check_arrival(states: Iterable[EngineState], sent: Mapping[str, Fingerprint], sync_id: str) -> None:
    """Raises SamplingError where one of an engine's workers has not got what was sent, or does not use it."""
    if not sent:
        raise SamplingError("there were no weights to send")
    for state in states:
        if state.error:
            raise SamplingError(f"the engine could not take the new weights: {state.error}")
        if state.sync_id != sync_id:
            raise SamplingError(f"the engine says that it has the weights {state.sync_id or 'it started with'} after {sync_id} were sent")
        _check_same("arrived at the engine otherwise than they were sent", sent, state.arrived, {*sent, *state.arrived})
        alike = {name for name in {*sent} & {*state.live} if sent[name].shape == state.live[name].shape}
        _check_same("were sent, but the engine goes on with others", sent, state.live, alike)


def _check_same(what: str, sent: Mapping[str, Fingerprint], there: Mapping[str, Fingerprint], names: Iterable[str]) -> None:
    differing = sorted(name for name in names if sent.get(name) != there.get(name))
    if differing:
        raise SamplingError(f"weights {what}: {', '.join(differing[:3])}{', ...' if len(differing) > 3 else ''} ({len(differing)} in all)")


def within(deadline_s: float, work: Callable[[], Result], what: str) -> Result:
    """The result of `work`, which runs in a thread of its own.

    Raises:
        SamplingError: It is not there after `deadline_s`; the thread is left behind.
    """
    result: Future[Result] = Future()
    device = torch.cuda.current_device() if torch.cuda.is_available() else None

    def run() -> None:
        try:
            if device is not None:
                torch.cuda.set_device(device)
            result.set_result(work())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, name=what, daemon=True).start()
    try:
        return result.result(timeout=deadline_s)
    except TimeoutError as error:
        if result.done() and result.exception() is error:  # its own
            raise
        raise SamplingError(
            f"{what} took longer than {deadline_s:g} s (sampler.sync_deadline_s); run again (training: with --resume)"
        ) from None
