"""A run's metrics as TensorBoard reads them, beside another tracker."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping
from pathlib import Path

from microcoder_core.tracking import Tracker

logger = logging.getLogger(__name__)


class WithTensorBoard:
    """A tracker whose metrics are written to `folder` too.

    What `folder` held is replaced: whoever goes on with a run tells the metrics of its earlier steps again.
    """

    def __init__(self, tracker: Tracker, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        shutil.rmtree(folder, ignore_errors=True)
        self._tracker = tracker
        self._writer = SummaryWriter(str(folder), flush_secs=10)

    def __getattr__(self, name: str) -> object:
        return getattr(self._tracker, name)

    def log_metrics(self, metrics: Mapping[str, float], step: int = 0) -> None:
        """See `Tracker.log_metrics`."""
        self._tracker.log_metrics(metrics, step)
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Writes what is left; the other tracker stays open."""
        self._writer.close()
