"""A small hub on this machine: the part of its HTTP interface that loading and uploading a model use."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"
WRITER, READER = "hf_writer", "hf_reader"


@dataclass
class HubState:
    """What the hub holds, and what it was asked for."""

    repos: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """Files by path, by repository."""
    gated: set[str] = field(default_factory=set)
    private: set[str] = field(default_factory=set)
    blobs: dict[str, bytes] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    address: str = ""
    stores_blobs: bool = True
    """Whether weights go to a store of their own (git LFS); else they are in the commit, as small files are."""
    broken: bool = False
    """Whether everything is answered with 503."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: HubState

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _answer(self, status: int, body: bytes = b"{}", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _json(self, **values: Any) -> None:
        self._answer(200, json.dumps(values).encode(), Content_Type="application/json")

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _serve(self) -> None:
        body, path = self._body(), self.path.split("?")[0]
        self.state.requests.append(f"{self.command} {path}")
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if self.state.broken:
            return self._answer(503)
        if path.startswith("/blobs/"):
            self.state.blobs[path.removeprefix("/blobs/")] = body
            return self._answer(200)
        if token not in ("", WRITER, READER):
            return self._answer(401, X_Error_Message="Invalid credentials in Authorization header")
        if path == "/api/whoami-v2":
            return self._json(name="someone", type="user", auth={})
        if path == "/api/validate-yaml":
            return self._json(errors=[], warnings=[])
        if path == "/api/repos/create":
            return self._create(json.loads(body), token)
        if self.command in ("GET", "HEAD"):
            return self._read(path, token)
        if token != WRITER:
            return self._answer(403, X_Error_Message="no right to write")
        return self._write(path, body)

    do_GET = do_HEAD = do_POST = do_PUT = _serve  # noqa: N815

    def _create(self, asked: dict[str, Any], token: str) -> None:
        if token != WRITER:
            return self._answer(403, X_Error_Message="You don't have the rights to create a model")
        repo = f"{asked['organization']}/{asked['name']}"
        if repo in self.state.repos:
            return self._answer(409, json.dumps({"url": f"{self.state.address}/{repo}"}).encode())
        self.state.repos[repo] = {}
        if asked.get("private") or asked.get("visibility") == "private":
            self.state.private.add(repo)
        return self._json(url=f"{self.state.address}/{repo}")

    def _read(self, path: str, token: str) -> None:
        repo = next((one for one in self.state.repos if f"/{one}/" in f"{path}/"), None)
        if repo is None or (repo in self.state.private and not token):
            return self._answer(401 if not token else 404, X_Error_Code="RepoNotFound")
        if path.startswith("/api/models/"):
            if "/tree/" in path:
                return self._answer(404, X_Error_Code="EntryNotFound")
            return self._json(id=repo, sha=COMMIT, private=repo in self.state.private, siblings=[], tags=[])
        if repo in self.state.gated and token != WRITER:
            return self._answer(403 if token else 401, X_Error_Code="GatedRepo")
        content = self.state.repos[repo].get(path.partition("/resolve/")[2].partition("/")[2])
        if content is None:
            return self._answer(404, X_Error_Code="EntryNotFound", X_Repo_Commit=COMMIT)
        return self._answer(200, content, X_Repo_Commit=COMMIT, ETag=f'"{hashlib.sha256(content).hexdigest()}"')

    def _write(self, path: str, body: bytes) -> None:
        if "/preupload/" in path:
            files = json.loads(body)["files"]
            return self._json(files=[{"path": one["path"], "uploadMode": self._mode(one["path"]), "shouldIgnore": False} for one in files])
        if path.endswith("/objects/batch"):
            upload = {one["oid"]: {"upload": {"href": f"{self.state.address}/blobs/{one['oid']}"}} for one in json.loads(body)["objects"]}
            sizes = {one["oid"]: one["size"] for one in json.loads(body)["objects"]}
            objects = [{"oid": oid, "size": sizes[oid], "actions": actions} for oid, actions in upload.items()]
            return self._json(transfer="basic", objects=objects)
        assert "/commit/" in path, path
        repo = path.removeprefix("/api/models/").partition("/commit/")[0]
        for line in body.splitlines():
            self._commit(self.state.repos[repo], json.loads(line))
        return self._json(commitUrl=f"{self.state.address}/{repo}/commit/{COMMIT}", commitOid=COMMIT)

    def _mode(self, path: str) -> str:
        return "lfs" if self.state.stores_blobs and path.endswith(".safetensors") else "regular"

    def _commit(self, files: dict[str, bytes], operation: dict[str, Any]) -> None:
        value = operation["value"]
        if operation["key"] == "file":
            files[value["path"]] = base64.b64decode(value["content"])
        elif operation["key"] == "lfsFile":
            files[value["path"]] = self.state.blobs[value["oid"]]


@contextmanager
def hub_server() -> Iterator[HubState]:
    """A hub that runs while the block does."""
    state = HubState()
    handler = type("Handler", (_Handler,), {"state": state})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    state.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
