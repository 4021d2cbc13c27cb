"""Servers for the tests of the S3 store: moto's, in a process of its own, and a proxy before it that fails as it is told to."""

import http.client
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@contextmanager
def moto_server(log: Path) -> Iterator[str]:
    """The URL of a server that takes any credentials and holds all in its memory."""
    port = free_port()
    command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with log.open("wb") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=stream, env={**os.environ, "TMPDIR": str(log.parent)})
    try:
        _wait_for(port, process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def free_port() -> int:
    """A port on which nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            assert process.poll() is None, "moto's server has ended"
            assert time.monotonic() < deadline, "moto's server does not start"
            time.sleep(0.1)


class Proxy:
    """Passes requests on to a server. `fault`, set by a test, gets method and path and returns a status or an S3 error code to answer
    instead, "cut" to break the answer off in its middle, "drop" to close the connection once the server has the request, or None.
    """

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream.removeprefix("http://")
        self.fault: Callable[[str, str], int | str | None] = lambda method, path: None
        self.seen: list[tuple[str, str]] = []


@contextmanager
def proxy_before(upstream: str) -> Iterator[tuple[str, Proxy]]:
    """The URL of a proxy, and the proxy."""
    proxy = Proxy(upstream)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"proxy": proxy}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"  # one request a connection, so that no thread waits for a next one
    proxy: Proxy

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.proxy.seen.append((self.command, self.path))
        fault = self.proxy.fault(self.command, self.path)
        if fault is not None and fault not in ("cut", "drop"):
            status, code = (fault, "AccessDenied") if isinstance(fault, int) else (404, fault)
            self._answer(status, [("Content-Type", "application/xml")], f"<Error><Code>{code}</Code></Error>".encode())
            return
        status, headers, data = self._ask(body)
        if fault == "drop":
            return
        self._answer(status, headers, data[: len(data) // 2] if fault == "cut" else data, length=len(data))

    def _ask(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(self.proxy.upstream, timeout=60)
        try:
            connection.request(self.command, self.path, body, dict(self.headers))
            answer = connection.getresponse()
            data = answer.read()
            if self.command == "HEAD":
                return answer.status, answer.getheaders(), data
            return answer.status, [pair for pair in answer.getheaders() if pair[0].lower() != "content-length"], data
        finally:
            connection.close()

    def _answer(self, status: int, headers: list[tuple[str, str]], data: bytes, length: int | None = None) -> None:
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in ("connection", "transfer-encoding", "date", "server"):
                self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(data) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *arguments: object) -> None:
        pass


for _method in ("GET", "PUT", "POST", "HEAD", "DELETE"):
    setattr(_Handler, f"do_{_method}", _Handler._pass_on)
