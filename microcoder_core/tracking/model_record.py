"""What MLflow is told of a model: an `MLmodel` record with its signature, and where the weights lie. No weights are copied."""

from __future__ import annotations

import json
import os
from pathlib import Path

import yaml

MODEL_URI_TAG = "microcoder.model_uri"


def model_uri(folder: Path) -> str:
    """Where a model lies for others: `MICROCODER_MODEL_URI` (the artifact store's address on a cluster), else its absolute path.

    Kubeflow Pipelines writes `minio://` where MLflow reads `s3://`.
    """
    uri = os.environ.get("MICROCODER_MODEL_URI") or str(folder.absolute())
    return "s3://" + uri.removeprefix("minio://") if uri.startswith("minio://") else uri


def mlmodel_text() -> str:
    """An `MLmodel` file that says: prompt in, completion out. The same bytes every time, and no flavour: transformers loads the folder."""
    signature = {"inputs": _column("prompt"), "outputs": _column("completion"), "params": None}
    return yaml.safe_dump({"flavors": {}, "signature": signature}, sort_keys=False)


def _column(name: str) -> str:
    return json.dumps([{"type": "string", "name": name, "required": True}])
