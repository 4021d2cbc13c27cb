"""A container of podman's for tests, made of this machine's own Python: no registry, no base image, no network."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

HARDENED = ["--read-only", "--cap-drop", "all", "--network", "none", "--user", "65534", "--security-opt", "no-new-privileges"]
_CONFIG = """
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=4096:4096"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
"""
"""For machines whose podman finds no systemd and may not raise limits."""
_ENDS_AFTER_S = 240
"""A test that is killed would leave its container running."""
_LEFT_OUT = ("test", "tests", "site-packages", "__pycache__", "config-3*", "idlelib", "lib2to3", "ensurepip", "turtledemo", "tkinter")
_BINARY_PACKAGES = ("pydantic_core", "numpy")
"""Packages that the judge needs, or offers, with libraries of their own that need the system's."""


class Container:
    """A root file system with Python's standard library, shared libraries and nothing else.

    Args:
        folder: An empty folder to make it in (70 MB).
    """

    def __init__(self, folder: Path) -> None:
        self._config = folder / "containers.conf"
        self._config.write_text(_CONFIG + ('runtime = "runc"\n' if shutil.which("runc") else ""))
        self._root = folder / "root"
        self._python = os.path.realpath(sys.executable)
        library = sysconfig.get_path("stdlib")
        shutil.copytree(library, self._inside(library), ignore=shutil.ignore_patterns(*_LEFT_OUT))
        for file in (self._python, *_shared_libraries([self._python, *glob.glob(f"{library}/lib-dynload/*.so"), *_binaries()])):
            self._copy(file)
        self._packages = f"{library}/site-packages"
        for place in ("/proc", "/sys", "/dev", "/etc", "/run", "/tmp", "/repository", self._packages):
            self._inside(place).mkdir(parents=True, exist_ok=True)
        self._inside("/tmp").chmod(0o1777)  # which what is mounted there takes over

    def command(self, repository: Path) -> list[str]:
        """What runs this Python in the container, to be followed by its arguments, in a read-only `repository`.

        The scratch folders need a place: /tmp, in memory. Podman would add /run and /var/tmp.
        """
        places = ["--read-only-tmpfs=false", "--tmpfs", "/tmp"]
        mounts = ["-v", f"{repository}:/repository:ro", "-v", f"{sysconfig.get_path('purelib')}:{self._packages}:ro"]
        settings = ["-w", "/repository", "-e", "OMP_NUM_THREADS=1", "-e", "PYTHONDONTWRITEBYTECODE=1"]
        start = ["env", f"CONTAINERS_CONF={self._config}", "podman", "run", "--rm", "--timeout", str(_ENDS_AFTER_S), "--rootfs"]
        return [*start, *HARDENED, *places, *mounts, *settings, str(self._root), self._python]

    def _inside(self, path: str) -> Path:
        return self._root / path.lstrip("/")

    def _copy(self, file: str) -> None:
        """By the name it is looked for, whatever links there are on the way."""
        self._inside(file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(os.path.realpath(file), self._inside(file))


def _binaries() -> list[str]:
    packages = sysconfig.get_path("platlib")
    return [file for name in _BINARY_PACKAGES for file in glob.glob(f"{packages}/{name}/**/*.so", recursive=True)]


def _shared_libraries(binaries: list[str]) -> list[str]:
    """Paths of the system's libraries that `binaries` need."""
    listed = subprocess.run(["ldd", *binaries], capture_output=True, text=True, check=True).stdout
    words = {word for line in listed.splitlines() for word in line.split() if word.startswith("/") and not word.endswith(":")}
    return sorted(word for word in words if not word.startswith(sysconfig.get_path("platlib")))
