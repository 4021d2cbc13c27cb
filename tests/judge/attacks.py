# ruff: noqa: E501
"""Hostile programs, one attack each: none may be accepted, none may leave a trace. Also run in other surroundings by `attack_tier`.

Every program is judged on one test whose right answer is `ANSWER`; a function attack defines `f`, called with `PUBLIC`. A script that gets
through its attack prints the answer, so that an attack that works is an accepted program.
"""

from __future__ import annotations

from collections.abc import Iterator

from microcoder_core.records import Checker, Problem, TestCase

ANSWER = "secret-7f3a"
PUBLIC = "public-x"

SEND = """
import os
def frame(text):
    return len(text).to_bytes(4, "big") + text
def send(data):
    for fd in range(3, 128):
        try:
            os.write(fd, data)
        except OSError:
            pass
"""
"""Defines `frame`, which makes a frame of bytes, and `send`, which writes to every descriptor."""
PEEK = """
import gc, re, sys
def texts():
    frame = sys._getframe()
    while frame:
        yield repr(list(frame.f_locals.items()) + list(frame.f_globals.items()))
        frame = frame.f_back
    for thing in gc.get_objects():
        if isinstance(thing, (str, bytes, dict, list, tuple)):
            yield repr(thing)
def find():
    for text in texts():
        found = re.search("secret-[0-9a-f]+", text)
        if found:
            return found[0]
"""
"""Defines `find`, which returns the first secret in a frame or an object of the process."""
_LIBC = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"

FUNCTIONS = {
    # a verdict forged
    "exit-zero": "import os\ndef f(x): os._exit(0)",
    "exit-zero-at-import": "import os\nos._exit(0)",
    "system-exit": "import sys\ndef f(x): sys.exit(0)",
    "atexit-exit": "import atexit, os\natexit.register(os._exit, 0)\ndef f(x): pass",
    "forged-verdict-frame": SEND + 'def f(x):\n    send(frame(b\'{"verdict": "accepted"}\'))\n    os._exit(0)',
    "forged-passed-frame": SEND + "def f(x):\n    send(frame(b'{\"passed\": true}'))\n    os._exit(0)",
    "two-frames": SEND + "def f(x):\n    send(frame(b'{\"value\": 1}'))\n    return 2",
    "frame-longer-than-it-says": SEND + "def f(x):\n    send(b'\\xff\\xff\\xff\\xff{}')\n    os._exit(0)",
    "frame-nested-deeply": SEND + "def f(x):\n    send(frame(b'{\"value\": ' + b'[' * 200000 + b']' * 200000 + b'}'))\n    os._exit(0)",
    "frame-of-a-million-digits": SEND + "def f(x):\n    send(frame(b'{\"value\": ' + b'9' * 10**6 + b'}'))\n    os._exit(0)",
    "frame-not-a-number": SEND + "def f(x):\n    send(frame(b'{\"value\": NaN}'))\n    os._exit(0)",
    "frame-of-the-codec-tags": SEND + 'def f(x):\n    send(frame(b\'{"value": {"$type": "object"}}\'))\n    os._exit(0)',
    "closed-channel": "import os\ndef f(x):\n    os.closerange(3, 128)",
    # objects that pose as the answer
    "equal-to-everything": "class J:\n    def __eq__(s, o): return True\n    def __hash__(s): return 0\ndef f(x): return J()",
    "text-equal-to-everything": "class J(str):\n    def __eq__(s, o): return True\n    __hash__ = str.__hash__\ndef f(x): return J('no')",
    "changing-class": "class J:\n    __class__ = str\n    def __str__(s): return 'no'\ndef f(x): return J()",
    "list-that-lies": "class J(list):\n    def __len__(s): return 1\n    def __getitem__(s, i): return 'no'\ndef f(x): return J()",
    "reduce-trick": "class J:\n    def __reduce__(s): return (print, ('accepted',))\ndef f(x): return J()",
    "endless-generator": "def f(x):\n    while True:\n        yield 1",
    "cyclic-result": "def f(x):\n    a = []\n    a.append(a)\n    return a",
    # the answer looked for
    "peek-frames-and-heap": PEEK + "def f(x): return find()",
    "peek-referrers": "import gc\ndef f(x):\n    return [r for r in gc.get_referrers(x) if 'secret' in repr(r)] or None",
    "peek-modules": "import sys\ndef f(x):\n    return next((repr(vars(m)) for m in list(sys.modules.values()) if 'secret-' in repr(vars(m))), None)",
    "peek-threads": "import sys\ndef f(x): return next((repr(fr.f_locals) for fr in sys._current_frames().values() if 'secret-' in repr(fr.f_locals)), None)",
    "trace-function": "import sys\nseen = []\nsys.settrace(lambda fr, e, a: seen.append(repr(fr.f_locals)))\ndef f(x): return next((s for s in seen if 'secret-' in s), None)",
    # tools of the harness patched
    "patched-json": "import json\njson.dumps = json.loads = lambda *a, **k: 'accepted'\ndef f(x): return 'no'",
    "patched-builtins": "import builtins\nbuiltins.all = builtins.any = builtins.isinstance = lambda *a: True\ndef f(x): return 'no'",
    "patched-eq-of-str": "import ctypes\ndef f(x):\n    import gc\n    d = gc.get_referents(str.__dict__)[0]\n    d['__eq__'] = lambda a, b: True\n    return 'no'",
    "patched-os-write": "import os\nos.write = lambda fd, data: len(data)\ndef f(x): return 'no'",
    "recursion-limit": "import sys\nsys.setrecursionlimit(2**31 - 1)\ndef f(x): return f(x)",
}

SCRIPTS = {
    # files, processes and memory of others
    "read-parent-memory": "import os\nopen('/proc/%d/mem' % os.getppid(), 'r+b')",
    "read-parent-environment": "import os\nprint(open('/proc/%d/environ' % os.getppid()).read())",
    "write-machine-settings": "open('/proc/sys/vm/overcommit_memory', 'r+')",
    "write-core-pattern": "open('/proc/sys/kernel/core_pattern', 'r+')",
    "change-oom-score-of-parent": "import os\nopen('/proc/%d/oom_score_adj' % os.getppid(), 'r+')",
    "write-system-settings": "open('/sys/kernel/mm/transparent_hugepage/enabled', 'r+')",
    "read-passwords": "print(open('/etc/shadow').read())",
    "read-token": "print(open('/var/run/secrets/kubernetes.io/serviceaccount/token').read())",
    "list-home": "import os; print(os.listdir('/root'))",
    "write-interpreter": "import os\nopen(os.__file__, 'a')",
    "write-parent-folder": "open('../left-behind', 'w')",
    "write-tmp-elsewhere": "open('/var/tmp/left-behind', 'w')",
    "link-out": "import os\nos.symlink('/etc/passwd', 'p')\nos.link('/etc/passwd', 'q')",
    "make-device": "import os; os.mknod('/dev/x', 0o20666, os.makedev(1, 3))",
    "set-user-id": "import os; os.setuid(0); os.setgid(0); os.setgroups([0]); open('/etc/shadow')",
    "change-root": "import os; os.chroot('/')",
    "mount": _LIBC + "assert libc.mount(b'none', b'/', b'tmpfs', 0, None) == 0",
    "unshare-user": _LIBC + "assert libc.unshare(0x10000000) == 0",
    "set-namespace": _LIBC + "import os\nassert libc.setns(os.open('/proc/self/ns/net', 0), 0) == 0",
    "trace-parent": _LIBC + "import os\nassert libc.ptrace(16, os.getppid(), 0, 0) == 0",
    "read-memory-of-parent-by-call": _LIBC
    + "import os\nassert libc.process_vm_readv(os.getppid(), ctypes.c_char_p(b'x'), 1, ctypes.c_char_p(b'x'), 1, 0) >= 0",
    "keyring": _LIBC + "assert libc.syscall(248, b'user', b'x', b'y', 1, -3) > 0",
    "io-uring": _LIBC + "assert libc.syscall(425, 8, ctypes.create_string_buffer(256)) >= 0",
    "userfaultfd": _LIBC + "assert libc.syscall(323, 0) >= 0",
    "bpf": _LIBC + "assert libc.syscall(321, 0, ctypes.create_string_buffer(128), 128) >= 0",
    "perf-events": _LIBC + "assert libc.syscall(298, ctypes.create_string_buffer(128), 0, -1, -1, 0) >= 0",
    "kernel-module": _LIBC + "assert libc.syscall(175, b'x', 1, b'') == 0",
    "shared-memory": _LIBC + "assert libc.shmget(0, 4096, 0o1777) >= 0",
    "message-queue": _LIBC + "assert libc.msgget(0x7f3a, 0o1777) >= 0",
    "posix-shared-memory": "open('/dev/shm/left-behind', 'w')",
    "memory-file": "import os; os.memfd_create('x')",
    # the network
    "internet": "import socket; socket.create_connection(('1.1.1.1', 53), 2)",
    "metadata-address": "import urllib.request; urllib.request.urlopen('http://169.254.169.254/', timeout=2)",
    "loopback": "import socket; socket.socket().connect(('127.0.0.1', 5000))",
    "abstract-socket": "import socket; socket.socket(socket.AF_UNIX).connect('\\0x')",
    "netlink": "import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)",
    "raw-packets": "import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    # processes and signals
    "fork": "import os; os.fork()",
    "fork-bomb": "import os\nwhile True: os.fork()",
    "spawn": "import os; os.posix_spawn('/bin/true', ['true'], {})",
    "shell": "import os; assert os.system('true') == 0",
    "subprocess": "import subprocess; subprocess.run(['true'])",
    "execute": "import os; os.execv('/bin/true', ['true'])",
    "execute-interpreter": "import os, sys; os.execv(sys.executable, ['python3', '-c', 'print(1)'])",
    "execute-memory": _LIBC + "fd = libc.syscall(319, b'x', 0)\nassert fd >= 0",
    "multiprocessing": "import multiprocessing; multiprocessing.Process(target=print).start()",
    "kill-all": "import os; os.kill(-1, 9)",
    "kill-parent": "import os; os.kill(os.getppid(), 9)",
    "kill-by-descriptor": "import os, signal; signal.pidfd_send_signal(os.pidfd_open(os.getppid()), 9)",
    "stop-self": "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",
    "renice-parent": "import os; os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)",
    "limit-parent": "import os, resource; resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (1, 1))",
    "raise-own-limits": "import resource; resource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
    "ignore-signals": "import signal\nfor n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n    except (OSError, ValueError): pass\nwhile True: pass",
    "own-session": "import os; os.setsid()",
    "other-architecture": "import ctypes, mmap\ncode = bytes.fromhex('b802000000cd80c3')\npage = mmap.mmap(-1, 4096, prot=7)\npage.write(code)\n"
    "assert ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))() > 2",  # 2: no such call at all
    # exhaustion
    "memory": "a = []\nwhile True: a.append(bytearray(1 << 24))",
    "memory-at-once": "a = b'x' * (1 << 40)",
    "thread-bomb": "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(60,)).start()",
    "disk": "with open('x', 'wb') as f:\n    while True: f.write(bytes(1 << 20))",
    "many-disks": "for n in range(100):\n    with open(f'x{n}', 'wb') as f: f.write(bytes(32 << 20))",
    "inodes": "for n in range(100000): open(f'x{n}', 'w').close()",
    "deep-folders": "import os\nwhile True:\n    os.mkdir('d')\n    os.chdir('d')",
    "output": "while True: print('x' * 65536)",
    "newlines": "import sys\nwhile True: sys.stdout.write('\\n' * 65536)",
    "error-output": "import sys\nwhile True: sys.stderr.write('x' * 65536)",
    "descriptors": "import os\nkept = []\nwhile True: kept.append(os.dup(1))",
    "sleep": "import time; time.sleep(3600)",
    "busy": "while True: pass",
    "compile-bomb": "print(" + "(" * 5000 + ")" * 5000 + ")",
    "constant-bomb": "x = 9 ** 9 ** 9",
    "regular-expression": "import re; re.match('(a+)+$', 'a' * 40 + 'b')",
    "null-pointer": "import ctypes; ctypes.string_at(0)",
    "deep-recursion": "import sys\nsys.setrecursionlimit(10**9)\ndef f(n): return f(n + 1) + 1\nf(0)",
}

NUISANCES = {
    # nothing forbidden, but what the next program must not feel
    "unremovable-folder": "import os\nos.makedirs('a/b')\nos.chmod('a/b', 0)\nos.chmod('a', 0)",
    "links-in-scratch": "import os\nos.symlink('/', 'root')\nos.symlink('.', 'self')\nos.mkfifo('pipe')",
    "closed-output": "import os; os.close(1)",
    "output-that-is-sealed": f"import fcntl\nfcntl.fcntl(1, 1033, 15)\nprint({ANSWER!r})",
    "output-made-long": f"import os\nos.ftruncate(1, 1 << 30)\nprint({ANSWER!r})",
    "code-for-the-next-test": "import os\nfor fd in range(3, 128):\n    try: code = os.pread(fd, 9, 0)\n    except OSError: continue\n"
    f"    if code: print({ANSWER!r})",
    "closed-everything": "import os; os.closerange(0, 256)",
    "daemon-thread": "import threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
    "changed-folder-and-mask": "import os; os.umask(0o777); open('x', 'w').close(); os.chmod('.', 0)",
    "alarm": "import signal; signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01); signal.signal(signal.SIGALRM, signal.SIG_IGN)",
    "patched-interpreter": "import builtins, sys; builtins.print = None; sys.stdout = None; sys.modules.clear()",
}


def attacks() -> Iterator[tuple[str, Problem, str]]:
    """Name, problem and program of each."""
    asked = {"checker": Checker(kind="exact"), "time_limit_s": 1.0, "memory_limit_mib": 256, "statement": "s"}
    called, read = TestCase(input=[PUBLIC], expected=ANSWER), TestCase(input=PUBLIC, expected=ANSWER)
    function = Problem(problem_id="f", form="function", entry_point="f", tests=(called,), **asked)
    script = Problem(problem_id="s", form="stdin", tests=(read,), **asked)
    for name, program in FUNCTIONS.items():
        yield name, function, program
    for name, program in SCRIPTS.items():
        yield name, script, f"{program}\nprint({ANSWER!r})\n"
    for name, program in NUISANCES.items():
        yield name, script, program
