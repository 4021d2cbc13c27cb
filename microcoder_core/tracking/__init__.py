"""What a stage tells of itself while it runs. Imports no MLflow: `microcoder_core.tracking.mlflow_tracker` does, when asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol


class Tracker(Protocol):
    """One run of one stage. No method raises because a tracking server is away, and none waits for it."""

    @property
    def run_id(self) -> str | None:
        """Identifier of the tracked run, or None where nothing is tracked."""
        ...

    def log_params(self, params: Mapping[str, Any]) -> None:
        """Records settings, by dotted name."""
        ...

    def log_metrics(self, metrics: Mapping[str, float], step: int = 0) -> None:
        """Records numbers at a step; a missing one is left out, never 0."""
        ...

    def log_artifact(self, path: Path, folder: str = "") -> None:
        """Records a copy of a file, or of a folder with all that is in it."""
        ...

    def log_table(self, rows: Sequence[Mapping[str, Any]], path: str) -> None:
        """Records rows of one shape as a JSON file at `path` among the run's artifacts, as `mlflow.load_table` reads it."""
        ...

    def log_dataset(self, path: Path, context: str) -> None:
        """Records that a data set was used, by path and content hash. `context` is its role, such as `training`."""
        ...

    def log_model(self, folder: Path, name: str) -> None:
        """Records a model folder with its signature by reference: no weights are copied."""
        ...

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Records short texts that runs are searched by."""
        ...


class NullTracker:
    """Tracks nothing."""

    run_id: str | None = None

    def log_params(self, params: Mapping[str, Any]) -> None: ...

    def log_metrics(self, metrics: Mapping[str, float], step: int = 0) -> None: ...

    def log_artifact(self, path: Path, folder: str = "") -> None: ...

    def log_table(self, rows: Sequence[Mapping[str, Any]], path: str) -> None: ...

    def log_dataset(self, path: Path, context: str) -> None: ...

    def log_model(self, folder: Path, name: str) -> None: ...

    def set_tags(self, tags: Mapping[str, str]) -> None: ...
