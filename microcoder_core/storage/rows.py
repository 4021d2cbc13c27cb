"""JSON Lines, plain or compressed (.gz, .zst): streamed in, streamed out."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, NoReturn

from microcoder_core.errors import InputError
from microcoder_core.storage.atomic import atomic_path

JSONL_SUFFIXES = (".jsonl", ".jsonl.gz", ".jsonl.zst")


def is_jsonl(path: Path) -> bool:
    """Whether the name of `path` says JSON Lines."""
    return path.name.endswith(JSONL_SUFFIXES)


def read_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number (from 1) and JSON object of each non-blank line.

    Raises:
        InputError: A file that is missing, unreadable or damaged; a line that is no JSON object, by its number.
    """
    for number, line in _lines(path):
        yield number, _parse_line(line, f"{path}:{number}")


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with _open_text(path) as stream:
            for number, line in enumerate(stream, start=1):
                if line.strip():
                    yield number, line
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read ({error})") from None


def _parse_line(line: str, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not JSON ({error}); each line must be one JSON object") from None
    if not isinstance(row, dict):
        raise InputError(f"{where}: must be a JSON object, got {type(row).__name__}")
    return row


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def write_rows(path: Path, rows: Iterable[Any]) -> int:
    """Writes rows to a file, whole or not at all, compressed as its name says; returns their number."""
    count = 0
    with atomic_path(path) as staging, _open_for_writing(staging, path.name) as stream:
        for row in rows:
            stream.write(dump_row(row))
            count += 1
    return count


def count_rows(path: Path) -> int:
    """Number of non-blank lines, unread."""
    return sum(1 for _ in _lines(path))


def dump_row(row: Any) -> str:
    """`row` as one line of JSON, keys in their order. Characters are escaped only where UTF-8 has no form for one of them."""
    line = json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n"
    try:
        line.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return json.dumps(row, separators=(",", ":")) + "\n"
    return line


def _open_text(path: Path) -> IO[str]:
    """The text of a file; a byte order mark, as Windows editors write it, is skipped."""
    if path.name.endswith(".gz"):
        return gzip.open(path, "rt", encoding="utf-8-sig")
    if path.name.endswith(".zst"):
        return io.TextIOWrapper(io.BufferedReader(_ZstdReader(path), 1 << 20), encoding="utf-8-sig")
    return path.open(encoding="utf-8-sig")


class _ZstdReader(io.RawIOBase):
    """Decompresses every frame of a file; the library's own reader stops after the first and takes a file cut short as whole."""

    def __init__(self, path: Path) -> None:
        import zstandard

        self._stream = path.open("rb")
        self._new_frame = zstandard.ZstdDecompressor().decompressobj
        self._frame: Any = None
        self._compressed = b""
        self._text = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        import zstandard

        while not self._text:
            if not self._compressed:
                self._compressed = self._stream.read(1 << 17)
            if not self._compressed:
                if self._frame is not None:
                    raise EOFError("the file ends before its compressed data does")
                return 0
            self._frame = self._frame or self._new_frame()
            try:
                self._text = self._frame.decompress(self._compressed)
            except zstandard.ZstdError as error:
                raise OSError(str(error)) from None
            self._compressed = self._frame.unused_data if self._frame.eof else b""
            if self._frame.eof:
                self._frame = None
        count = min(len(buffer), len(self._text))
        buffer[:count], self._text = self._text[:count], self._text[count:]
        return count

    def close(self) -> None:
        self._stream.close()
        super().close()


@contextlib.contextmanager
def _open_for_writing(staging: Path, name: str) -> Iterator[IO[str]]:
    """A text stream into `staging`, compressed as `name` says; equal rows give equal bytes (no time, no name in the header)."""
    with contextlib.ExitStack() as stack:
        raw: Any = stack.enter_context(staging.open("wb"))
        if name.endswith(".gz"):
            raw = stack.enter_context(gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0))
        elif name.endswith(".zst"):
            import zstandard

            raw = stack.enter_context(zstandard.ZstdCompressor().stream_writer(raw, closefd=False))
        yield stack.enter_context(io.TextIOWrapper(raw, encoding="utf-8", newline="\n"))
