"""A real vLLM server on this machine's CPU, with the nano model."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

MAIN = "import sys; from microcoder_core.cli.main import main; main(sys.argv[1:])"

START_S = 180.0
"""For a server to start on a busy machine."""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Server:
    """`microcoder serve-model` in a process group of its own."""

    def __init__(self, log: Path, **environment: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        command = [sys.executable, "-c", MAIN, "serve-model", "--model", "nano", "--port", str(self.port)]
        command += ["--dtype", "float32", "--kv-cache-memory-bytes", str(1 << 28)]
        with log.open("wb") as stream:
            self._process = subprocess.Popen(
                command, stdout=stream, stderr=stream, start_new_session=True, env={**os.environ, "OMP_NUM_THREADS": "1", **environment}
            )

    def signal(self, number: int) -> None:
        os.killpg(self._process.pid, number)

    def stop(self) -> None:
        if self._process.poll() is None:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGKILL)
            self._process.wait()
