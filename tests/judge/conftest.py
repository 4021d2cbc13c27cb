"""One judge for all the tests of this folder: starting workers costs more than most tests."""

from collections.abc import Callable, Iterator

import pytest

from microcoder_core.judge.config import JudgeConfig
from microcoder_core.judge.judge import Judge
from microcoder_core.records import Checker, Judgement, Problem, TestCase


@pytest.fixture(scope="session")
def judge() -> Iterator[Judge]:
    with Judge(JudgeConfig(workers=2)) as running:
        yield running


@pytest.fixture(scope="session")
def minimum_judge() -> Iterator[Judge]:
    """A judge as in a pod that has neither Landlock nor namespaces."""
    with Judge(JudgeConfig(workers=1, sandbox="minimum")) as running:
        yield running


@pytest.fixture
def run_stdin(judge: Judge) -> Callable[..., Judgement]:
    """Judges a stdin program on one test."""

    def run(program: str, stdin: str = "", expected: str = "", **fields: object) -> Judgement:
        problem = Problem(
            problem_id="p",
            statement="s",
            form="stdin",
            tests=(TestCase(input=stdin, expected=expected),),
            checker=Checker(kind="tokens"),
            **fields,
        )
        return judge.submit(problem, program).result(timeout=60)

    return run


@pytest.fixture
def run_function(judge: Judge) -> Callable[..., Judgement]:
    """Judges a program that defines `f` on one test."""

    def run(program: str, arguments: list[object], expected: object, **fields: object) -> Judgement:
        fields = {"checker": Checker(kind="exact")} | fields
        problem = Problem(
            problem_id="p", statement="s", form="function", entry_point="f", tests=(TestCase(input=arguments, expected=expected),), **fields
        )
        return judge.submit(problem, program).result(timeout=60)

    return run
