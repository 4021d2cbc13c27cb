"""A plot with the words around it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from markupsafe import Markup


class Labelled(Protocol):
    """Something with a name that a person reads."""

    @property
    def label(self) -> str: ...


LabelledType = TypeVar("LabelledType", bound=Labelled)


@dataclass(frozen=True)
class Plot:
    """A drawing with its title and note; `svg` is None where nothing of it was recorded."""

    name: str
    title: str
    note: str
    svg: Markup | None
    missing: list[str] = field(default_factory=list)
    """What the plot would show, had it been recorded."""


def found_or_missing(items: Iterable[LabelledType], is_recorded: Callable[[LabelledType], bool]) -> tuple[list[LabelledType], list[str]]:
    """The recorded items, and the labels of the others."""
    found: list[LabelledType] = []
    missing: list[str] = []
    for item in items:
        if is_recorded(item):
            found.append(item)
        else:
            missing.append(item.label)
    return found, missing
