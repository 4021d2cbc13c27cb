"""Signals that ask a run to stop."""

import os
import signal

import pytest

from microcoder_core.interrupt import Terminated, signals_ignored, sigterm_raises, stop_exit_code, stop_waits


def handlers() -> list[object]:
    return [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]


def test_sigterm_raises_inside_and_not_outside() -> None:
    before = handlers()
    with pytest.raises(KeyboardInterrupt) as stopped, sigterm_raises():
        os.kill(os.getpid(), signal.SIGTERM)
    assert stop_exit_code(stopped.value) == 143
    assert handlers() == before


@pytest.mark.parametrize(("number", "kind"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)])
def test_a_stop_waits_for_the_end_of_the_block(number: int, kind: type[BaseException]) -> None:
    before, done = handlers(), []

    def work() -> None:
        with stop_waits("this"):
            os.kill(os.getpid(), number)
            done.append(1)

    with pytest.raises(KeyboardInterrupt) as stopped:
        work()
    assert (type(stopped.value), done) == (kind, [1])
    assert handlers() == before


def test_a_second_stop_does_not_wait() -> None:
    done = []

    def work() -> None:
        with stop_waits("this"):
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            done.append(1)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == []


def test_an_error_inside_is_not_hidden_by_a_stop() -> None:
    def work() -> None:
        with stop_waits("this"):
            os.kill(os.getpid(), signal.SIGINT)
            raise ValueError("x")

    with pytest.raises(ValueError, match="x"):
        work()


def test_saving_is_not_disturbed() -> None:
    before = handlers()
    with signals_ignored():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
    assert handlers() == before


def test_what_was_ignored_stays_ignored() -> None:
    """A shell has SIGINT ignored in its background jobs."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with stop_waits("this"):
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
