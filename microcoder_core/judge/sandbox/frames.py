"""How a child and the grader write to each other: tagged JSON in frames, four bytes of length before each."""

import builtins
import json
import os
import types
from collections.abc import Mapping
from json.encoder import c_make_encoder, encode_basestring_ascii  # type: ignore[attr-defined]
from typing import Any

_write, _read, _type = os.write, os.read, type  # as they were before any program ran


class Codec:
    """The codec of `microcoder_core.values`, loaded by path, and a JSON writer, with builtins that no program can replace."""

    def __init__(self, values_source: str) -> None:
        namespace: dict[str, Any] = {"__name__": "values", "__builtins__": dict(vars(builtins))}
        exec(compile(values_source, "values", "exec", dont_inherit=True), namespace)
        self.encode, self.decode = namespace["encode"], namespace["decode"]
        self._chunks = c_make_encoder(None, None, encode_basestring_ascii, None, ": ", ", ", False, False, False)
        namespace["json"] = types.SimpleNamespace(dumps=self._dumps)
        self._loads = json.JSONDecoder().decode

    def _dumps(self, value: object) -> str:
        text: str = "".join(self._chunks(value, 0))
        return text

    def pack(self, frame: Mapping[str, object]) -> bytes:
        """`frame` as bytes, without its length."""
        return self._dumps(frame).encode()

    def unpack(self, frame: bytes) -> Any:
        return self._loads(frame.decode())

    def pack_value(self, value: object) -> bytes:
        """The frame of a result; of `unserialisable` where the codec does not carry it."""
        try:
            return self.pack({"value": self.encode(value)})
        except TypeError:
            return self.pack({"unserialisable": _type(value).__name__})


def send(fd: int, frame: bytes) -> None:
    """Writes one frame."""
    write_whole(fd, len(frame).to_bytes(4, "big") + frame)


def receive(fd: int) -> bytes | None:
    """The next frame, or None where the other side has ended."""
    header = _read_exactly(fd, 4)
    return header and _read_exactly(fd, int.from_bytes(header, "big"))


def _read_exactly(fd: int, count: int) -> bytes | None:
    parts = []
    while count:
        part = _read(fd, min(count, 1 << 20))
        if not part:
            return None
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def write_whole(fd: int, content: bytes) -> None:
    """Writes all of `content`."""
    left = memoryview(content)
    while left:
        left = left[_write(fd, left) :]


def read_whole(fd: int) -> bytes:
    """The content of the file `fd`, whatever its offset."""
    return os.pread(fd, os.fstat(fd).st_size, 0)
