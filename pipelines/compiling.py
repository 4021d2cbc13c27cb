"""The pipeline as the YAML that a cluster runs. It is committed, so that a change of the pipeline shows in review."""

from __future__ import annotations

import difflib
import tempfile
from pathlib import Path

from microcoder_core.errors import MicrocoderError
from microcoder_core.storage.atomic import write_text

COMPILED = Path(__file__).resolve().parent / "compiled" / "train.yaml"
_DIFF_LINES = 40


class StalePipelineError(MicrocoderError):
    """The committed YAML is not what the pipeline compiles to."""


def compile_training() -> str:
    """The training pipeline as YAML. The same text for the same code, image names and KFP version."""
    from kfp import compiler

    from pipelines.training import training

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "train.yaml"
        compiler.Compiler().compile(training, str(file))
        return file.read_text(encoding="utf-8")


def write_compiled(target: Path) -> None:
    """Compiles the pipeline to `target`."""
    write_text(target, compile_training())


def check_compiled(target: Path) -> None:
    """Raises StalePipelineError, with the first differences, where `target` is not what the pipeline compiles to."""
    there = target.read_text(encoding="utf-8") if target.is_file() else ""
    compiled = compile_training()
    if compiled == there:
        return
    lines = list(difflib.unified_diff(there.splitlines(), compiled.splitlines(), str(target), "compiled now", lineterm="", n=1))
    rest = f"\n... {len(lines) - _DIFF_LINES} more lines" if len(lines) > _DIFF_LINES else ""
    shown = "\n".join(lines[:_DIFF_LINES])
    raise StalePipelineError(f"{target} is stale; write it with: microcoder pipeline compile\n{shown}{rest}")
