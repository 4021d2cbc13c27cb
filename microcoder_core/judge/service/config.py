"""Settings of the judge service."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from microcoder_core.config import Config
from microcoder_core.judge.config import JudgeConfig


class ServiceConfig(Config):
    """Where the service listens, and how much it takes on."""

    host: str = "127.0.0.1"
    """Address to listen on; `0.0.0.0` for every one."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    """Port to listen on; 0 takes a free one."""
    max_programs: Annotated[int, Field(ge=1)] = 4096
    """Programs taken and not yet answered at most; beyond that a request is answered 429. Chosen: some seconds of work for 8 workers."""
    max_request_mib: Annotated[int, Field(ge=1, le=1024)] = 64
    """Size of a request at most; beyond that it is answered 413."""
    heartbeat_s: Annotated[float, Field(gt=0)] = 5.0
    """Seconds after which an empty line says that the next answer is being worked on."""
    drain_s: Annotated[float, Field(ge=0)] = 30.0
    """Seconds that requests may go on after the service was told to stop. Kubernetes kills a pod after 30 unless told otherwise."""
    judge: JudgeConfig = JudgeConfig()
    """How programs are run and compared."""
