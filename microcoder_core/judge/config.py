"""Settings of the judge."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field

from microcoder_core.config import Config
from microcoder_core.cpus import available_cpus
from microcoder_core.records import MemoryLimit, TimeLimit

Chain = Literal["guarded", "microcoder", "strict"]
TestOrder = Literal["cheap_first", "killers_first"]
SandboxMode = Literal["auto", "minimum", "none"]


class JudgeConfig(Config):
    """How programs are run and compared."""

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

    def without_workers(self) -> Self:
        """The settings that verdicts depend on."""
        return self.model_copy(update={"workers": None})
