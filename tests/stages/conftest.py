"""A few drills as a data set, shared by the tests of the stages."""

import itertools
from pathlib import Path

import pytest

from microcoder_core.data.drills import drill_problems
from microcoder_core.storage.datasets import DatasetWriter, LineageStep


@pytest.fixture(scope="session")
def drills(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight training drills."""
    folder = tmp_path_factory.mktemp("drills") / "data"
    with DatasetWriter(folder, LineageStep(stage="import")) as writer:
        for problem in itertools.islice(drill_problems("train"), 8):
            writer.add(problem)
    return folder
