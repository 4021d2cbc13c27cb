"""A control group a worker, where this process may make one: bounds the memory of a worker with its program, and the threads.

Covers: version 2 (a group beside or below this process's own, where its files for memory and pids are there) and version 1, each controller
by itself. Does not cover: making controllers available that the system keeps to itself (a restricted pod mounts the groups read-only).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

PREFIX = "microcoder-judge-"
LAYERS = {"memory": "cgroup_memory", "pids": "cgroup_pids"}
MAX_TASKS = 256
"""Threads of a worker's program at a time. Chosen: contest programs start a handful."""
BESIDE_PROGRAM_MIB = 192
"""Beyond a program's memory limit: its scratch files (64 MiB), its output file (64), the worker, page tables and pipes."""
_LIMITS = {"memory": ("memory.max", "memory.limit_in_bytes"), "pids": ("pids.max", "pids.max")}
_SWAP = ("memory.swap.max", "memory.memsw.limit_in_bytes")
_KILLS = ("memory.events", "memory.oom_control")
_REMOVAL_S = 2.0
_MIB = 1024 * 1024


class ControlGroup:
    """The groups of one worker, one folder a controller (one for both in version 2).

    Args:
        folders: By controller, the group's folder.
    """

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self._folders = dict(folders)
        self._memory_mib: int | None = None

    @classmethod
    def make(cls, name: str, groups: Path = Path("/proc/self/cgroup"), mounts: Path = Path("/proc/self/mountinfo")) -> Self:
        """A new group for each controller that this process may use; none where it may use none. Never raises."""
        folders: dict[str, Path] = {}
        for controller in LAYERS:
            for parent in _parents(controller, groups, mounts):
                folder = parent / name
                if _is_made(folder, controller):
                    folders[controller] = folder
                    break
        return cls(folders)

    def open_to_join(self) -> list[int]:
        """Descriptors, one a group: a process that writes `0` to each is in it."""
        return [os.open(folder / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC) for folder in set(self._folders.values())]

    @property
    def layers(self) -> list[str]:
        """Names of the controllers that hold now: a process is in the group, and the limit reads as it was set."""
        return [LAYERS[controller] for controller, folder in self._folders.items() if _holds(folder, controller)]

    def limit_memory(self, program_mib: int) -> None:
        """Bounds the worker with a program that may use `program_mib`."""
        folder = self._folders.get("memory")
        if folder is None or program_mib == self._memory_mib:
            return
        most = str((program_mib + BESIDE_PROGRAM_MIB) * _MIB)
        swap = next((folder / name for name in _SWAP if (folder / name).exists()), None)
        limit = _file(folder, _LIMITS["memory"])
        in_order = [swap, limit] if swap and swap.name == "memory.memsw.limit_in_bytes" else [limit, swap]
        for file in (*in_order, *reversed(in_order)):  # version 1 keeps the limit below that of memory with swap, at each step
            if file is not None:
                with contextlib.suppress(OSError):
                    file.write_text("0" if file.name == "memory.swap.max" else most)
        with contextlib.suppress(OSError):  # a lower limit is refused while more is held; the next program asks again
            self._memory_mib = program_mib if limit.read_text().strip() == most else None

    def memory_kills(self) -> int:
        """Processes that the system has ended because the group was over its limit."""
        folder = self._folders.get("memory")
        if folder is None:
            return 0
        with contextlib.suppress(OSError):
            for line in _file(folder, _KILLS).read_text().splitlines():
                name, _, count = line.partition(" ")
                if name == "oom_kill":
                    return int(count)
        return 0

    def remove(self) -> None:
        """Removes the groups, once their processes have ended."""
        deadline = time.monotonic() + _REMOVAL_S
        for folder in set(self._folders.values()):
            while not _is_removed(folder) and time.monotonic() < deadline:
                time.sleep(0.005)
        self._folders.clear()


def groups_left(groups: Path = Path("/proc/self/cgroup"), mounts: Path = Path("/proc/self/mountinfo")) -> list[Path]:
    """The groups of judges that are there, where this process would make its own."""
    parents = {parent for controller in LAYERS for parent in _parents(controller, groups, mounts)}
    return sorted(folder for parent in parents for folder in parent.glob(f"{PREFIX}*"))


def _parents(controller: str, groups: Path, mounts: Path) -> Iterator[Path]:
    """Where a group with `controller` may be made: in version 2 below this process's own group or beside it, in version 1 below it."""
    own = _own_groups(groups)
    for root, place, kind, options in _mounts(mounts):
        group = own.get("" if kind == "cgroup2" else controller)
        if group is None or (kind == "cgroup" and controller not in options):
            continue
        inside = os.path.relpath(group, root)
        if inside.startswith(".."):
            continue
        folder = place / inside
        yield folder
        if kind == "cgroup2" and folder != place:
            yield folder.parent


def _own_groups(groups: Path) -> dict[str, str]:
    """This process's group by controller of version 1; under the empty name that of version 2."""
    found = {}
    with contextlib.suppress(OSError):
        for line in groups.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            found.update(dict.fromkeys(controllers.split(","), path))
    return found


def _mounts(mounts: Path) -> Iterator[tuple[str, Path, str, list[str]]]:
    """Root, place, kind and options of each mounted hierarchy of groups."""
    with contextlib.suppress(OSError):
        for line in mounts.read_text().splitlines():
            before, _, after = line.partition(" - ")
            kind, _, options = after.split(" ", 2)
            if kind in ("cgroup", "cgroup2"):
                _, _, _, root, place = before.split(" ")[:5]
                yield root, Path(place), kind, options.split(",")


def _is_made(folder: Path, controller: str) -> bool:
    try:
        folder.mkdir(exist_ok=True)
    except OSError:
        return False
    try:
        limit = _file(folder, _LIMITS[controller])
        if controller == "pids":
            limit.write_text(str(MAX_TASKS))
        return os.access(limit, os.W_OK)
    except OSError:
        _is_removed(folder)
        return False


def _holds(folder: Path, controller: str) -> bool:
    try:
        limit = _file(folder, _LIMITS[controller]).read_text().strip()
        return bool((folder / "cgroup.procs").read_text().strip()) and limit.isdigit() and int(limit) < 1 << 62
    except OSError:
        return False


def _file(folder: Path, names: tuple[str, str]) -> Path:
    """The file of the version that this group is of. Raises FileNotFoundError where it has neither."""
    for name in names:
        if (folder / name).exists():
            return folder / name
    raise FileNotFoundError(f"{folder} has no {names[0]}")


def _is_removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
