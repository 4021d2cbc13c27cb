"""How many processors this process may use: those of its affinity mask, within the quota of its control group; and its part in a launch."""

from __future__ import annotations

import math
import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def available_cpus() -> int:
    """Whole processors, at least 1. A container's quota counts (rounded up), where `os.cpu_count` tells the machine's.

    Where a launcher (torchrun, accelerate) started several processes on this machine, one's share.
    """
    allowed = len(os.sched_getaffinity(0))
    quota = cgroup_quota(_CGROUP)
    number = allowed if quota is None else max(1, min(allowed, math.ceil(quota)))
    return max(1, number // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


def is_main_process() -> bool:
    """Whether this is the one process of a launcher's that writes files and speaks to people; true without a launcher."""
    return os.environ.get("RANK", "0") == "0"


def cgroup_quota(root: Path) -> float | None:
    """Processors that the control group mounted at `root` grants (version 2, then 1); None where it sets no limit."""
    try:
        if (root / "cpu.max").is_file():
            quota, period = (root / "cpu.max").read_text().split()
        else:
            quota, period = ((root / "cpu" / f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period"))
        return int(quota) / int(period) if quota not in ("max", "-1") else None
    except (OSError, ValueError):
        return None
