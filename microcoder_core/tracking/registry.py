"""The model registry: versions registered by reference, and the aliases that name the present ones. Tries again, then fails."""

from __future__ import annotations

import contextlib
import logging
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from microcoder_core.errors import MicrocoderError
from microcoder_core.tracking.addresses import without_password
from microcoder_core.tracking.mlflow_server import connect, is_refusal
from microcoder_core.tracking.model_record import MODEL_URI_TAG, mlmodel_text

logger = logging.getLogger(__name__)

CHALLENGER = "challenger"
CHAMPION = "champion"
_REGISTRATION_TAG = "microcoder.registration"
_RECORD_FOLDER = "registered_model"
_PAUSES_S = (1.0, 2.0, 4.0)
"""Between attempts: a server that restarts is there again after these."""

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelVersion:
    """One version of a registered model."""

    version: str
    tags: Mapping[str, str]


class ModelRegistry:
    """The registry of the tracking server that the environment names.

    Every method raises MicrocoderError where the registry cannot be reached after some attempts, or refuses.
    """

    def register(self, name: str, uri: str, *, run_id: str | None, tags: Mapping[str, str], description: str) -> str:
        """Registers what lies at `uri`, of which nothing is copied; returns the version."""
        registration = uuid.uuid4().hex
        tags = {**tags, MODEL_URI_TAG: uri, _REGISTRATION_TAG: registration}

        def register(client: Any) -> str:
            with contextlib.suppress(Exception):  # it is there already; a registry that is away fails in the next line
                client.create_registered_model(name)
            for known in client.search_model_versions(f"name = '{name}'"):
                if known.tags.get(_REGISTRATION_TAG) == registration:  # made by an attempt whose answer was lost
                    return str(known.version)
            create = {"name": name, "run_id": run_id, "tags": tags, "description": description, "await_creation_for": 0}
            try:
                return str(client.create_model_version(source=uri, **create).version)
            except Exception as error:
                if run_id is None or "Invalid model version source" not in str(error):
                    raise
            source = _record_in_run(client, run_id, uri)
            return str(client.create_model_version(source=source, **create).version)

        return _call(f"register {uri} as model {name}", register)

    def set_alias(self, name: str, alias: str, version: str) -> None:
        """Points `alias` at a version."""
        _call(f"make version {version} of model {name} {alias}", lambda client: client.set_registered_model_alias(name, alias, version))

    def champion(self, name: str) -> ModelVersion | None:
        """The present champion of a registered model, or none."""

        def find(client: Any) -> ModelVersion | None:
            version = client.get_registered_model(name).aliases.get(CHAMPION)
            if version is None:
                return None
            found = client.get_model_version(name, str(version))
            return ModelVersion(version=str(found.version), tags=dict(found.tags))

        return _call(f"read the champion of model {name}", find)


def _record_in_run(client: Any, run_id: str, uri: str) -> str:
    """Leaves the record of a model in its run, for servers that take no folder of the client's machine as a source."""
    logger.info("registry: the server takes no local folder as a source; the version points at its run, a tag at %s", uri)
    client.log_text(run_id, mlmodel_text(), f"{_RECORD_FOLDER}/MLmodel")
    return f"runs:/{run_id}/{_RECORD_FOLDER}"


def _call(what: str, action: Callable[[Any], Answer]) -> Answer:
    for pause_s in (*_PAUSES_S, None):
        try:
            return action(connect().client)
        except Exception as error:
            reason = without_password(" ".join(str(error).split())[:300])
            if pause_s is None or is_refusal(error):
                raise MicrocoderError(f"registry: could not {what} ({reason}); check MLFLOW_TRACKING_URI, or add --no-registry") from error
            logger.warning("registry: could not %s, trying again (%s)", what, reason)
            time.sleep(pause_s)
    raise AssertionError("unreachable")
