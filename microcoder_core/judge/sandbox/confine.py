"""What a worker and its children do to themselves before a program runs; none of it needs a privilege, and none of it can be undone.

All that a zygote can do without is taken from it once, and its children inherit that; what it needs (to fork, to kill a child) each child
takes from itself.
"""

import ctypes
import os
import resource
import signal
from collections.abc import Iterable
from typing import Any

from . import landlock, seccomp

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38
_CAPABILITY_VERSION_3 = 0x20080522
_MIB = 1024 * 1024
_FILE_SIZE_MIB = 64
_OPEN_FILES = 128
_NOBODY = 65534


class Confinement:
    """The layers that this system allows, prepared once in the zygote.

    Args:
        filtered: Whether to use no_new_privs, seccomp and dropped capabilities (not with `--sandbox none`).
        use_landlock: Whether to use Landlock where the kernel has it.
        has_own_root: Whether a mount namespace confines the files already.
    """

    def __init__(
        self, libc: ctypes.CDLL, readable: Iterable[str], scratch: str, filtered: bool, use_landlock: bool, has_own_root: bool
    ) -> None:
        self._libc = libc
        self._rules: landlock.Rules | None = None
        if use_landlock:
            try:
                self._rules = landlock.Rules(libc, readable, [scratch, "/dev/null", "/dev/zero"])
            except OSError:
                self._rules = None
        self._is_read_only = not (self._rules or has_own_root)
        self._common = seccomp.common_filter(libc, self._is_read_only) if filtered else None
        self._final = seccomp.final_filter(libc) if filtered else None

    @property
    def layers(self) -> list[str]:
        """Names of the layers that `enter` and `apply` set; `probe` tests that they hold."""
        names = ["own_process", "rlimits"]
        if self._final:
            names += ["no_new_privs", "seccomp"] + (["read_only"] if self._is_read_only else [])
        return names + (["landlock"] if self._rules else [])

    def enter(self) -> None:
        """Binds the zygote. Raises OSError where a layer that was there is refused."""
        _limit({resource.RLIMIT_NOFILE: _OPEN_FILES, resource.RLIMIT_CORE: 0, resource.RLIMIT_STACK: resource.RLIM_INFINITY})
        if self._common is None:
            return
        drop_capabilities(self._libc)
        if self._libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "no_new_privs refused")
        if self._rules:
            self._rules.enter()
        self._common.install()

    def apply(self, limits: dict[str, Any]) -> None:
        """Binds a child. Raises OSError where a layer is refused."""
        os.setsid()
        self._libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        _limit(
            {
                resource.RLIMIT_CPU: int(limits["cpu_s"]) + 2,  # a backstop: the zygote watches the CPU clock more finely
                resource.RLIMIT_AS: (limits["memory_mib"] + limits["address_grace_mib"]) * _MIB,
                resource.RLIMIT_FSIZE: max(_FILE_SIZE_MIB * _MIB, limits["output_bytes"] + 1),
            }
        )
        if self._final:
            self._final.install()


def _limit(values: dict[int, int]) -> None:
    """Sets both the soft and the hard limit, as far as the hard one allows."""
    for kind, value in values.items():
        hard = resource.getrlimit(kind)[1]
        if hard != resource.RLIM_INFINITY and (value == resource.RLIM_INFINITY or value > hard):
            value = hard
        resource.setrlimit(kind, (value, value))


def close_memory(libc: ctypes.CDLL) -> None:
    """Keeps processes of the same user, children forked later among them, from opening the caller's memory; they inherit it."""
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def drop_capabilities(libc: ctypes.CDLL) -> None:
    """Empties the capability sets of the calling process."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    if libc.capset(header, (ctypes.c_uint32 * 6)()) != 0:
        raise OSError(ctypes.get_errno(), "capset refused")


def become_nobody(needed: str) -> bool:
    """Whether the caller, being root, gave up its user; not done where nobody could not read the folder `needed`."""
    if os.geteuid() != 0:
        return False
    try:
        os.seteuid(_NOBODY)
    except PermissionError:  # root in name alone, as in a pod that drops all capabilities
        return False
    try:
        os.listdir(needed)
    except OSError:
        return False
    finally:
        os.seteuid(0)
    os.setgroups([])
    os.setresgid(_NOBODY, _NOBODY, _NOBODY)
    os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    return True


def die_with_parent(libc: ctypes.CDLL, parent: int) -> None:
    """Has the caller killed when its parent ends; ends it at once where that has happened already."""
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
