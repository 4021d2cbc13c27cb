"""Namespaces of the zygote, so that its children share them at no cost a test.

The mount namespace holds the interpreter, its libraries and four harmless devices, all read-only, and a scratch folder of its own
in memory; the network namespace is empty; the process namespace dies with the zygote.
"""

import contextlib
import ctypes
import os
import struct
from collections.abc import Iterable

_USER, _MOUNT, _PROCESS, _NETWORK, _IPC, _HOST = 0x10000000, 0x00020000, 0x20000000, 0x40000000, 0x08000000, 0x04000000
_NAMES = {
    _USER: "user_namespace",
    _MOUNT: "mount_namespace",
    _PROCESS: "pid_namespace",
    _NETWORK: "network_namespace",
    _IPC: "ipc_namespace",
    _HOST: "uts_namespace",
}
_MS_NOSUID, _MS_NODEV, _MS_BIND, _MS_REC, _MS_PRIVATE = 2, 4, 4096, 16384, 1 << 18
_ATTR_RDONLY, _ATTR_NOSUID = 1, 2
_MOUNT_SETATTR = 442
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_MNT_DETACH = 2
_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
SCRATCH = "/scratch"
SCRATCH_OPTIONS = "size=64m,nr_inodes=4096,mode=0700"


def enter(libc: ctypes.CDLL, mounts: bool) -> list[str]:
    """Leaves the caller's namespaces and returns the layers gained; processes forked from now on are in the new process namespace.

    Raises:
        OSError: A system that allows none of this.
    """
    uid, gid = os.geteuid(), os.getegid()
    most = _PROCESS | _NETWORK | _IPC | _HOST | (_MOUNT if mounts else 0)
    for flags in (_USER | most, most):  # without a user namespace only root may
        if libc.unshare(flags) == 0:
            break
    else:
        raise OSError(ctypes.get_errno(), "unshare refused")
    if flags & _USER:
        with contextlib.suppress(OSError):  # gVisor has it for show; where the kernel asks for it, the group map is refused
            _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{uid} {uid} 1")
        _write("/proc/self/gid_map", f"{gid} {gid} 1")
    return [name for flag, name in _NAMES.items() if flags & flag]


def change_root(libc: ctypes.CDLL, readable: Iterable[str], staging: str) -> None:
    """Makes a root of `readable` alone, read-only but for `SCRATCH`. Raises OSError where any step is refused."""
    _mount(libc, "none", "/", None, _MS_REC | _MS_PRIVATE)
    _mount(libc, "tmpfs", staging, "tmpfs", _MS_NOSUID | _MS_NODEV, "size=1m,mode=0755")
    for path in _topmost(readable):
        os.makedirs(staging + path, exist_ok=True)
        _bind(libc, path, staging + path)
    os.mkdir(staging + "/dev")
    for device in _DEVICES:
        os.close(os.open(staging + device, os.O_CREAT | os.O_WRONLY))
        _bind(libc, device, staging + device)
    os.symlink("/proc/self/fd/0", staging + "/dev/stdin")
    os.symlink("/proc/self/fd/1", staging + "/dev/stdout")
    os.mkdir(staging + "/proc")
    _mount(libc, "proc", staging + "/proc", "proc", _MS_NOSUID | _MS_NODEV)
    _read_only(libc, staging + "/proc", 0)  # root may write the machine's settings in it, whatever its capabilities
    os.mkdir(staging + SCRATCH)
    _mount(libc, "tmpfs", staging + SCRATCH, "tmpfs", _MS_NOSUID | _MS_NODEV, SCRATCH_OPTIONS)
    os.symlink(SCRATCH, staging + "/tmp")
    os.chdir(staging)
    _check(libc.pivot_root(b".", b"."), "pivot_root")
    _check(libc.umount2(b".", _MNT_DETACH), "umount2")
    os.chdir("/")
    _read_only(libc, "/", 0)


def _topmost(paths: Iterable[str]) -> list[str]:
    """The folders among `paths` that exist and lie inside no other of them."""
    kept: list[str] = []
    for path in sorted(paths):
        if os.path.isdir(path) and not any(path == above or path.startswith(above + "/") for above in kept):
            kept.append(path)
    return kept


def _bind(libc: ctypes.CDLL, source: str, target: str) -> None:
    _mount(libc, source, target, None, _MS_BIND | _MS_REC)
    _read_only(libc, target, _AT_RECURSIVE)


def _read_only(libc: ctypes.CDLL, target: str, flags: int) -> None:
    attributes = struct.pack("4Q", _ATTR_RDONLY | _ATTR_NOSUID, 0, 0, 0)
    arguments = (ctypes.c_long(_AT_FDCWD), target.encode(), ctypes.c_long(flags), attributes, ctypes.c_long(len(attributes)))
    _check(libc.syscall(ctypes.c_long(_MOUNT_SETATTR), *arguments), f"mount_setattr {target}")


def _mount(libc: ctypes.CDLL, source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    result = libc.mount(source.encode(), target.encode(), kind and kind.encode(), ctypes.c_ulong(flags), options and options.encode())
    _check(result, f"mount {target}")


def _check(result: int, what: str) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), f"{what} refused")


def _write(path: str, text: str) -> None:
    with open(path, "w") as stream:
        stream.write(text)
