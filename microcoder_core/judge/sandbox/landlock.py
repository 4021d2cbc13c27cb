"""The Landlock rules of a child: it reads the interpreter and its libraries, writes its scratch folder, and nothing else.

Also closes other processes' memory in /proc to it, and from ABI 4 and 6 on TCP, signals and abstract sockets.
"""

import contextlib
import ctypes
import os
import stat
import struct
from collections.abc import Iterable

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same numbers on every architecture
_VERSION = 1
_PATH_BENEATH = 1
_READ = 1 << 2 | 1 << 3  # read a file, list a folder
_ON_FILES = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15
_RIGHTS_BY_ABI = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}  # number of file system rights known
_NET_RIGHTS, _SCOPES = 0b11, 0b11


class Rules:
    """A rule set, made once in the zygote and entered by each child.

    Args:
        readable: Paths that may be read; those that are absent are passed over.
        writable: Folders where everything is allowed but running programs.

    Raises:
        OSError: A kernel without Landlock, or one that has it switched off.
    """

    def __init__(self, libc: ctypes.CDLL, readable: Iterable[str], writable: Iterable[str]) -> None:
        self._libc = libc
        abi = self._call(_CREATE_RULESET, None, 0, _VERSION)
        rights = (1 << _RIGHTS_BY_ABI.get(abi, 16)) - 1
        attributes = [rights] + ([_NET_RIGHTS] if abi >= 4 else []) + ([_SCOPES] if abi >= 6 else [])
        packed = struct.pack(f"{len(attributes)}Q", *attributes)
        self.ruleset_fd = self._call(_CREATE_RULESET, packed, len(packed), 0)
        for path in readable:
            self._allow(path, _READ)
        for path in writable:
            self._allow(path, rights & ~1)

    def enter(self) -> None:
        """Binds the calling process, for good. Needs no_new_privs."""
        self._call(_RESTRICT_SELF, self.ruleset_fd, 0)

    def _allow(self, path: str, rights: int) -> None:
        with contextlib.suppress(FileNotFoundError):
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
            try:
                if not stat.S_ISDIR(os.fstat(fd).st_mode):
                    rights &= _ON_FILES
                self._call(_ADD_RULE, self.ruleset_fd, _PATH_BENEATH, struct.pack("=Qi", rights, fd), 0)
            finally:
                os.close(fd)

    def _call(self, number: int, *arguments: object) -> int:
        result: int = self._libc.syscall(ctypes.c_long(number), *map(_native, arguments))
        if result < 0:
            raise OSError(ctypes.get_errno(), f"landlock call {number} refused")
        return result


def _native(argument: object) -> object:
    return ctypes.c_long(argument) if isinstance(argument, int) else argument
