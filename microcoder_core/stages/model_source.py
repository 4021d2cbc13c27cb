"""What a person may write for `--model`."""

from __future__ import annotations

from microcoder_core.nano import NANO_MODEL


def resolve_model(model: str) -> str:
    """A folder or hub id for transformers; `nano` is the shipped model."""
    return str(NANO_MODEL) if model == "nano" else model
