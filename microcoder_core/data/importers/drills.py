"""Format `drills`: the generated list-processing problems that the nano model learns from."""

from __future__ import annotations

from collections.abc import Iterator

from microcoder_core.errors import InputError
from microcoder_core.records import Dropped, Problem


def import_drills(source: str) -> Iterator[Problem | Dropped]:
    """The drills of one split; `source` is its name, `train` or `held_out`."""
    from microcoder_core.data.drills import drill_problems  # imported late: building the drills takes time

    check_split(source)
    yield from drill_problems("train" if source == "train" else "held_out")


def check_split(source: str) -> None:
    """Raises InputError where `source` names no split of the drills."""
    if source not in ("train", "held_out"):
        raise InputError(f"source: must be train or held_out for format drills, got {source!r}")
