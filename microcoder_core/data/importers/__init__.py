"""Importers: one a format, each a function from a source to Problems and to the records that it cannot take, with the reason."""

from collections.abc import Callable, Iterator

from microcoder_core.data.importers.drills import import_drills
from microcoder_core.data.importers.humaneval import import_humaneval
from microcoder_core.data.importers.jsonl import import_jsonl
from microcoder_core.data.importers.mbpp import import_mbpp
from microcoder_core.records import Dropped, Problem

Importer = Callable[[str], Iterator[Problem | Dropped]]
"""Takes a path (or a name, where the format says so); yields one thing for every record of the source."""

IMPORTERS: dict[str, Importer] = {
    "drills": import_drills,
    "humaneval": import_humaneval,
    "jsonl": import_jsonl,
    "mbpp": import_mbpp,
}
