"""The system call filters: no new process, no socket, no signal to others, nothing that changes the machine.

Covers: x86_64 and aarch64. A call newer than the list, and `clone3` (whose flags a filter cannot read), answer ENOSYS; `clone`
makes threads only; `prlimit64` reaches the caller only; the rest of `_DENIED` answers EPERM. The filters are two: what a zygote can do
without is refused to it and to its children (`common_filter`), the rest to its children alone (`final_filter`), 0.2 ms less a child.
With `read_only`, nothing can be made, changed or removed in any folder, and no file opened for writing: for where neither Landlock nor
a mount namespace says which folder is the program's own.
Does not cover: which files may be read (that is Landlock's and the mount namespace's part).
"""

import ctypes
import errno
import os
import struct
from collections.abc import Iterable

_DENIED = {  # name: (x86_64, aarch64)
    "socket": (41, 198),
    "bind": (49, 200),
    "connect": (42, 203),
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "execveat": (322, 281),
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "fanotify_init": (300, 262),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "memfd_create": (319, 279),  # its pages escape the address space limit
    "memfd_secret": (447, 447),
    "shmget": (29, 194),  # System V objects outlive the child
    "shmat": (30, 196),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "ioperm": (173, None),
    "iopl": (172, None),
    "modify_ldt": (154, None),
    "personality": (135, 92),
    "quotactl": (179, 60),
    "acct": (163, 89),
    "syslog": (103, 116),
    "vhangup": (153, 58),
    "lookup_dcookie": (212, 18),
    "nfsservctl": (180, 42),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "sched_setaffinity": (203, 122),
    "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118),
    "sched_setattr": (314, 274),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
}
_DENIED_READ_ONLY = {
    "creat": (85, None),
    "mkdir": (83, None),
    "mkdirat": (258, 34),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "rmdir": (84, None),
    "unlink": (87, None),
    "unlinkat": (263, 35),
    "rename": (82, None),
    "renameat": (264, 38),
    "renameat2": (316, 276),
    "link": (86, None),
    "linkat": (265, 37),
    "symlink": (88, None),
    "symlinkat": (266, 36),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "truncate": (76, 45),
    "ftruncate": (77, 46),
    "fallocate": (285, 47),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
}
_OPEN, _OPENAT, _OPENAT2 = (2, None), (257, 56), (437, 437)
_TO_WRITE = 0x1 | 0x2 | 0x40 | 0x200  # O_WRONLY, O_RDWR, O_CREAT, O_TRUNC
_ZYGOTE_NEEDS = ("fork", "vfork", "kill", "pidfd_open")
"""Of `_DENIED`: to start, watch and end children."""
_CLONE = (56, 220)
_PRLIMIT64 = (302, 261)
_CLONE3 = (435, 435)
_NEWEST_KNOWN = 450
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}

_CLONE_THREAD = 0x00010000
_LOAD, _JUMP_EQUAL, _JUMP_GREATER, _JUMP_SET, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
_OFFSET_NUMBER, _OFFSET_ARCHITECTURE, _OFFSET_ARGUMENTS = 0, 4, 16
_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_REFUSE, _ABSENT = 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


class Filter:
    """A filter ready to install."""

    def __init__(self, libc: ctypes.CDLL, code: bytes) -> None:
        self._libc = libc
        self._code = code
        self._program = ctypes.byref(_Program(len(code) // 8, code))

    def install(self) -> None:
        """Installs the filter on the calling process, for good. Needs no_new_privs. Raises OSError where the kernel refuses."""
        if self._libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, self._program, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "seccomp filter refused")


def common_filter(libc: ctypes.CDLL, read_only: bool) -> Filter:
    """What neither a zygote nor a child may do.

    Args:
        read_only: Whether to refuse every change to files as well.

    Raises:
        OSError: An architecture other than x86_64 and aarch64.
    """
    column, architecture = _architecture()
    code = [
        *_on(architecture),
        _instruction(_JUMP_GREATER, _NEWEST_KNOWN, 0, 1),  # x32 calls (bit 30 set) among them
        _instruction(_RETURN, _ABSENT),
        *_answer(_CLONE3[column], _ABSENT),
    ]
    if read_only:
        code += _answer(_OPENAT2[column], _ABSENT)  # its flags lie in memory, where a filter cannot look
        for numbers, place in ((_OPEN, 1), (_OPENAT, 2)):
            if (opening := numbers[column]) is not None:
                code += _answer_by_argument(opening, place, _instruction(_JUMP_SET, _TO_WRITE, 1, 0))
    denied = {**_DENIED, **(_DENIED_READ_ONLY if read_only else {})}
    code += _refusals((numbers for name, numbers in denied.items() if name not in _ZYGOTE_NEEDS), column)
    return Filter(libc, b"".join([*code, _instruction(_RETURN, _ALLOW)]))


def final_filter(libc: ctypes.CDLL) -> Filter:
    """What a child may not do either. Raises OSError as `common_filter` does."""
    column, architecture = _architecture()
    code = [
        *_on(architecture),
        *_answer_by_argument(_CLONE[column], 0, _instruction(_JUMP_SET, _CLONE_THREAD, 0, 1)),
        *_answer_by_argument(_PRLIMIT64[column], 0, _instruction(_JUMP_EQUAL, 0, 0, 1)),
        *_refusals((_DENIED[name] for name in _ZYGOTE_NEEDS), column),
    ]
    return Filter(libc, b"".join([*code, _instruction(_RETURN, _ALLOW)]))


def _architecture() -> tuple[int, int]:
    """Column of this machine in the lists, and its audit number."""
    machine = os.uname().machine
    if machine not in _ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"no system call list for {machine}")
    return _ARCHITECTURES[machine]


def _on(architecture: int) -> list[bytes]:
    """Ends a process that calls in the way of another architecture; goes on with the number of the call."""
    return [
        _instruction(_LOAD, _OFFSET_ARCHITECTURE),
        _instruction(_JUMP_EQUAL, architecture, 1, 0),
        _instruction(_RETURN, _KILL),
        _instruction(_LOAD, _OFFSET_NUMBER),
    ]


def _refusals(calls: Iterable[tuple[int | None, int | None]], column: int) -> list[bytes]:
    return [instruction for numbers in calls if (number := numbers[column]) is not None for instruction in _answer(number, _REFUSE)]


def _answer(number: int, action: int) -> list[bytes]:
    return [_instruction(_JUMP_EQUAL, number, 0, 1), _instruction(_RETURN, action)]


def _answer_by_argument(number: int, place: int, test: bytes) -> list[bytes]:
    """Allows call `number` where the argument at `place`, from 0, passes `test`."""
    return [
        _instruction(_JUMP_EQUAL, number, 0, 4),
        _instruction(_LOAD, _OFFSET_ARGUMENTS + 8 * place),
        test,
        _instruction(_RETURN, _ALLOW),
        _instruction(_RETURN, _REFUSE),
    ]


def _instruction(operation: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", operation, if_true, if_false, value)
