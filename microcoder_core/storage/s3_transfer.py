"""Files to and from an S3 server, in parallel parts: memory holds a few parts, whatever the size of the file."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeVar

from minio import Minio
from minio.datatypes import Part
from minio.error import MinioException, S3Error
from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_random_exponential
from urllib3.exceptions import HTTPError

from microcoder_core.errors import DamageError, StorageError
from microcoder_core.records import Record
from microcoder_core.storage.s3_connection import pool_of

PART_BYTES = 16 * 1024 * 1024
"""Chosen: the pause between two parts costs little, and four of them fit into any memory."""
PARALLEL_PARTS = 4
_MOST_PARTS = 10_000
_CHUNK_BYTES = 1024 * 1024
_READ_ATTEMPTS = 5

Result = TypeVar("Result")


class StoredFile(Record):
    """What a file was when it was put into the store."""

    size: int
    sha256: str


def put_file(client: Minio, bucket: str, key: str, file: Path) -> StoredFile:
    """Uploads a file; returns what was sent.

    Raises:
        StorageError: The file changed or went away meanwhile, or the server fails.
    """
    try:
        with file.open("rb") as stream:
            return _put_stream(client, bucket, key, stream)
    except FileNotFoundError:
        raise StorageError(f"{file}: was removed before it was uploaded; upload the folder when nothing changes it") from None


def _put_stream(client: Minio, bucket: str, key: str, stream: IO[bytes]) -> StoredFile:
    size = os.fstat(stream.fileno()).st_size
    digest = hashlib.sha256()
    if size <= PART_BYTES:
        data = stream.read(size)
        digest.update(data)
        client.put_object(bucket, key, io.BytesIO(data), len(data), part_size=PART_BYTES)
    else:
        _put_parts(client, bucket, key, _parts(stream, size, digest))
    if stream.tell() != size or stream.read(1):
        raise StorageError(f"{stream.name}: changed while it was uploaded; upload the folder when nothing changes it")
    return StoredFile(size=size, sha256=digest.hexdigest())


def _parts(stream: IO[bytes], size: int, digest: Any) -> Iterator[bytes]:
    part_bytes = max(PART_BYTES, -(-size // _MOST_PARTS))
    for offset in range(0, size, part_bytes):
        data = stream.read(min(part_bytes, size - offset))
        digest.update(data)
        yield data


def _put_parts(client: Minio, bucket: str, key: str, parts: Iterable[bytes]) -> None:
    """Uploads a file in parts; where that fails, the server is asked to forget those that it has."""
    forget_unfinished(client, bucket, key)
    upload = client._create_multipart_upload(bucket, key, {})
    try:
        sent: list[Any] = []
        tasks = (partial(_put_part, client, bucket, key, upload, number, data) for number, data in enumerate(parts, start=1))
        _run_in_order(client, tasks, sent.append)
        _finish(client, bucket, key, upload, sent)
    except BaseException:
        with _given_up(client), contextlib.suppress(MinioException, HTTPError, StorageError, ValueError):
            client._abort_multipart_upload(bucket, key, upload)
        raise


def _put_part(client: Minio, bucket: str, key: str, upload: str, number: int, data: bytes) -> Any:
    return Part(number, client._upload_part(bucket, key, data, None, upload, number))


def _finish(client: Minio, bucket: str, key: str, upload: str, sent: list[Any]) -> None:
    """Makes one object of the parts. Where the answer to a first request was lost, the server no longer knows the upload by the second."""
    try:
        client._complete_multipart_upload(bucket, key, upload, sent)
    except S3Error as error:
        if error.code != "NoSuchUpload":
            raise


def forget_unfinished(client: Minio, bucket: str, prefix: str) -> None:
    """Removes the parts of uploads that were killed, which no listing of objects shows, where the server can list them."""
    with contextlib.suppress(MinioException):
        for upload in client._list_multipart_uploads(bucket, prefix=prefix).uploads:
            client._abort_multipart_upload(bucket, upload.object_name, upload.upload_id)


def get_file(client: Minio, bucket: str, key: str, target: Path, size: int) -> StoredFile:
    """Downloads an object of `size` bytes; returns what now lies on the disk.

    Raises:
        DamageError: The object has another size.
        StorageError: The server fails.
    """
    digest = hashlib.sha256()
    with target.open("w+b") as stream:
        stream.truncate(size)
        descriptor = stream.fileno()
        ranges = ((start, min(start + PART_BYTES, size)) for start in range(0, size, PART_BYTES))
        tasks = (partial(_get_range, client, bucket, key, descriptor, start, end) for start, end in ranges)
        _run_in_order(client, tasks, lambda span: _update(digest, descriptor, *span))
        os.fsync(descriptor)
        return StoredFile(size=os.fstat(descriptor).st_size, sha256=digest.hexdigest())


def _update(digest: Any, descriptor: int, start: int, end: int) -> None:
    """Reads back what was just written: it is what counts, and still in the system's cache."""
    for offset in range(start, end, _CHUNK_BYTES):
        digest.update(os.pread(descriptor, min(_CHUNK_BYTES, end - offset), offset))


def _get_range(client: Minio, bucket: str, key: str, descriptor: int, start: int, end: int) -> tuple[int, int]:
    offset = start
    for attempt in _read_again(client):
        with attempt, contextlib.closing(_open(client, bucket, key, offset, end)) as response:
            for chunk in response.stream(_CHUNK_BYTES, decode_content=False):
                offset += _write(descriptor, chunk, offset)
            response.release_conn()
    return start, end


def _write(descriptor: int, data: bytes, offset: int) -> int:
    """Writes all of `data`, which one call of the system may not do; returns its length."""
    written = 0
    while written < len(data):
        written += os.pwrite(descriptor, memoryview(data)[written:], offset + written)
    return written


def _open(client: Minio, bucket: str, key: str, offset: int, end: int) -> Any:
    """The answer whose body is the bytes from `offset` to before `end`."""
    response = client.get_object(bucket, key, offset=offset, length=end - offset)
    if response.headers.get("Content-Length") == str(end - offset):
        return response
    response.close()
    raise DamageError(
        f"s3://{bucket}/{key}: {end - offset} bytes from {offset} were asked for, {response.headers.get('Content-Length')} came"
    )


def get_bytes(client: Minio, bucket: str, key: str) -> bytes | None:
    """A small object, or None where there is none."""
    for attempt in _read_again(client):
        with attempt:
            try:
                with contextlib.closing(client.get_object(bucket, key)) as response:
                    data: bytes = response.read()
                    response.release_conn()
                    return data
            except S3Error as error:
                if error.code != "NoSuchKey":
                    raise
    return None


def _read_again(client: Minio) -> Retrying:
    """Attempts at an answer whose body may break off."""

    def is_enough(state: RetryCallState) -> bool:
        return state.attempt_number >= _READ_ATTEMPTS or pool_of(client).is_given_up.is_set()

    return Retrying(stop=is_enough, wait=wait_random_exponential(0.2, max=5), retry=retry_if_exception_type(HTTPError), reraise=True)


def _run_in_order(client: Minio, tasks: Iterable[Callable[[], Result]], take: Callable[[Result], Any]) -> None:
    """Runs tasks in threads, a few at a time, and takes their results in order. After the first failure no request is tried again."""
    pending: deque[Future[Result]] = deque()
    executor = ThreadPoolExecutor(PARALLEL_PARTS, thread_name_prefix="s3")
    try:
        for task in tasks:
            if len(pending) == PARALLEL_PARTS:
                take(pending.popleft().result())
            pending.append(executor.submit(task))
        while pending:
            take(pending.popleft().result())
    except BaseException:
        with _given_up(client):
            executor.shutdown(cancel_futures=True)
        raise
    executor.shutdown()


@contextlib.contextmanager
def _given_up(client: Minio) -> Iterator[None]:
    """Tries no failing request of this client again until the end of the block."""
    is_given_up = pool_of(client).is_given_up
    is_given_up.set()
    try:
        yield
    finally:
        is_given_up.clear()
