"""JSON Lines, plain or compressed (.gz, .zst): streamed in, streamed out."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from microcoder_core.errors import InputError

JSONL_SUFFIXES = (".jsonl", ".jsonl.gz", ".jsonl.zst")


def is_jsonl(path: Path) -> bool:
    """Whether the name of `path` says JSON Lines."""
    return path.name.endswith(JSONL_SUFFIXES)


def read_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number (from 1) and JSON object of each non-blank line.

    Raises:
        InputError: A file that is missing, unreadable or damaged; a line that is no JSON object, by its number.
    """
    try:
        with _open_text(path) as stream:
            for number, line in enumerate(stream, start=1):
                if line.strip():
                    yield number, _parse_line(line, f"{path}:{number}")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (OSError, EOFError, UnicodeDecodeError, *_zstd_errors(path)) as error:
        raise InputError(f"{path}: cannot be read ({error})") from None


def _parse_line(line: str, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not JSON ({error}); each line must be one JSON object") from None
    if not isinstance(row, dict):
        raise InputError(f"{where}: must be a JSON object, got {type(row).__name__}")
    return row


def dump_row(row: Any) -> str:
    """`row` as one line of JSON, keys in their order."""
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n"


def _open_text(path: Path) -> IO[str]:
    if path.name.endswith(".gz"):
        return gzip.open(path, "rt", encoding="utf-8")
    if path.name.endswith(".zst"):
        import zstandard

        return io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(path.open("rb"), closefd=True), encoding="utf-8")
    return path.open(encoding="utf-8")


def _zstd_errors(path: Path) -> tuple[type[Exception], ...]:
    if not path.name.endswith(".zst"):
        return ()
    import zstandard

    return (zstandard.ZstdError,)
