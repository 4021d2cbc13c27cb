"""Settings of the judge."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator

from microcoder_core.config import Config, check_web_address
from microcoder_core.cpus import available_cpus
from microcoder_core.records import MemoryLimit, TimeLimit

Chain = Literal["guarded", "microcoder", "strict"]
TestOrder = Literal["cheap_first", "killers_first"]
SandboxMode = Literal["auto", "minimum", "none"]


TOKEN_VARIABLE = "MICROCODER_JUDGE_TOKEN"
"""Environment variable with the bearer token, at the service and at its clients: never a setting, since settings are tracked."""

SETTINGS_HEADER = "X-Judge-Settings"
"""Header with `JudgeConfig.verdict_fingerprint` of a client: a service that was started anew with other settings refuses it."""


class JudgeConfig(Config):
    """How programs are run and compared."""

    url: str | None = None
    """Address of a judge service that runs the programs, such as `http://judge:8080`; null runs them in this process. A service that
    asks for a bearer token finds it in the environment variable MICROCODER_JUDGE_TOKEN."""
    patience_s: Annotated[float, Field(gt=0)] = 900.0
    """How long a service that does not answer is waited for. Chosen: longer than training waits (`judge_deadline_s`), so that it stops
    rather than take for ungraded what only came late."""
    workers: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Programs run at a time. Null: one a processor that this process may use, since limits are in CPU time."""
    chain: Chain = "guarded"
    """Compare methods: `guarded` (the problem's checker decides), `microcoder` (the published chain, unguarded), `strict` (exact)."""
    sandbox: SandboxMode = "auto"
    """`auto`: every layer that holds; `minimum`: own process, rlimits, no_new_privs and seccomp only; `none`: rlimits only."""
    order: TestOrder = "cheap_first"
    """`cheap_first`: tests by the length of their input; `killers_first`: before them those that failed earlier programs of the
    problem: faster on wrong programs, but at which test, and so with which verdict, one fails then depends on the programs before it."""
    remembered_verdicts: Annotated[int, Field(ge=0)] = 4096
    """A program that was judged on a problem is not run on it again while it is among so many last ones. 0: always run."""
    time_limit_s: TimeLimit = 4.0
    """CPU seconds a test where the problem names none. Source: APPS, testing_util.py (4 s)."""
    memory_limit_mib: MemoryLimit = 1024
    """Resident MiB a test where the problem names none. Source: verl, sandbox_fusion reward (1024)."""
    address_grace_mib: Annotated[int, Field(ge=0, le=1 << 20)] = 512
    """Address space beyond the memory limit, for thread stacks and mappings never touched. Chosen, untested beyond the cases."""
    output_limit_mib: Annotated[int, Field(gt=0, le=1024)] = 16
    """What a program may print, or a function return. Chosen: DMOJ allows 24."""
    packages: bool = True
    """Whether programs may import what is installed beside the judge, numpy above all (contest sites offer it)."""

    @property
    def num_workers(self) -> int:
        """`workers`, resolved on this machine."""
        return self.workers or available_cpus()

    def without_place(self) -> Self:
        """The settings without those that say where and how many at a time: verdicts do not depend on them."""
        return self.model_copy(update={"workers": None, "url": None, "patience_s": JudgeConfig().patience_s})

    def verdict_settings(self) -> dict[str, Any]:
        """The settings that verdicts depend on, by name."""
        return self.model_dump(mode="json", exclude={"url", "patience_s", "workers", "remembered_verdicts", "sandbox"})

    def verdict_fingerprint(self) -> str:
        """SHA-256 (hex) of the settings that verdicts depend on."""
        return hashlib.sha256(json.dumps(self.verdict_settings(), sort_keys=True).encode()).hexdigest()

    @field_validator("url")
    @classmethod
    def _web_address(cls, value: str | None) -> str | None:
        return None if value is None else check_web_address(value, example="http://judge:8080", token_variable=TOKEN_VARIABLE)
