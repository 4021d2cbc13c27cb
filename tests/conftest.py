"""Fixtures that every area shares."""

import itertools
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from microcoder_core.data.drills import drill_problems
from microcoder_core.records import Problem, TestCase
from microcoder_core.storage.datasets import DatasetWriter, LineageStep

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder of the real data and cases that lie beside a development checkout."""
    if not SHARED.is_dir():
        pytest.skip(f"{SHARED} is absent: the real data lies beside development checkouts only")
    return SHARED


@pytest.fixture(autouse=True)
def root_logger_as_before() -> Iterator[None]:
    """An entry point that a test calls logs to the stderr of that test, which no later one may write to."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def double() -> Problem:
    """A function problem: return twice the argument."""
    return Problem(
        problem_id="double",
        statement="Return twice x.",
        form="function",
        entry_point="double",
        tests=(TestCase(input=[2], expected=4), TestCase(input=[-3], expected=-6)),
        reference_solutions=("def double(x):\n    return 2 * x\n",),
        wrong_solutions=("def double(x):\n    return x\n",),
    )


@pytest.fixture
def total() -> Problem:
    """A stdin problem: print the sum of the numbers on the second line."""
    return Problem(
        problem_id="total",
        statement="Print the sum of the n numbers.",
        form="stdin",
        tests=(TestCase(input="3\n1 2 3\n", expected="6\n"), TestCase(input="1\n-4\n", expected="-4\n")),
    )


@pytest.fixture(scope="session")
def drills(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight training drills."""
    folder = tmp_path_factory.mktemp("drills") / "data"
    with DatasetWriter(folder, LineageStep(stage="import")) as writer:
        for problem in itertools.islice(drill_problems("train"), 8):
            writer.add(problem)
    return folder
