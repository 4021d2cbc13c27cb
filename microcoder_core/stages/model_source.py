"""What a person may write for `--model`, and which weights that is."""

from __future__ import annotations

import hashlib
from pathlib import Path

from microcoder_core.nano import NANO_MODEL
from microcoder_core.storage.atomic import ADDED_LATER, MARKER
from microcoder_core.storage.stage_output import STAGE_FILE

_BESIDE_THE_MODEL = (STAGE_FILE, MARKER, *ADDED_LATER, "README.md", "MLmodel")
"""Files of a model folder that change nothing in what the model writes."""


def resolve_model(model: str) -> str:
    """A folder or hub id for transformers; `nano` is the shipped model."""
    return str(NANO_MODEL) if model == "nano" else model


def model_sha256(model: str) -> str:
    """SHA-256 (hex) over the files of a model folder: weights, configuration, tokenizer, prompt; `hub:ID` for a name on the hub."""
    folder = Path(resolve_model(model))
    if not folder.is_dir():
        return f"hub:{model}"
    digest = hashlib.sha256()
    for file in sorted(folder.iterdir()):
        if file.is_file() and file.name not in _BESIDE_THE_MODEL:
            with file.open("rb") as stream:
                digest.update(f"{file.name}\0{hashlib.file_digest(stream, 'sha256').hexdigest()}\0".encode())
    return digest.hexdigest()
