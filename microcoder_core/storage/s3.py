"""Folders in an S3 store (MinIO, SeaweedFS, AWS): each is there whole or not at all.

    s3://BUCKET/PREFIX/
        step-000010/model.safetensors  step-000010/...     the files
        step-000010/.complete.json                          size and SHA-256 of each; written last, deleted first
        state.json                                          a text

Covers: uploads and downloads that are killed at any moment, damage to what is stored.
Does not cover: two processes that upload a folder of the same name at once (the download then finds the damage), empty subfolders,
permissions and times of files.
"""

from __future__ import annotations

import io
import os
import re
import socket
from pathlib import Path, PurePosixPath
from typing import Literal

from minio import Minio
from minio.deleteobjects import DeleteObject
from minio.error import S3Error
from pydantic import ValidationError

from microcoder_core.errors import DamageError, InputError, StorageError
from microcoder_core.records import Record
from microcoder_core.storage.atomic import staged_folder
from microcoder_core.storage.s3_address import S3Address, parse_s3_address
from microcoder_core.storage.s3_connection import connect, explained
from microcoder_core.storage.s3_transfer import StoredFile, forget_unfinished, get_bytes, get_file, put_file

COMPLETE_MARKER = ".complete.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=+-]*")


class _Marker(Record):
    """What says that a folder is complete."""

    version: Literal[1] = 1
    files: dict[str, StoredFile]


class FolderStore:
    """Folders and texts below one address, each by a name without a slash. For one thread of one process at a time.

    Args:
        address: `s3://BUCKET/PREFIX`.
        client: A client that `s3_connection.connect` made; without one, the environment says where the server is.

    Raises:
        InputError: The address, the endpoint or the credentials are missing or malformed. Nothing is asked of the server yet.

    Every method raises InputError for what a person must change (bucket, rights, credentials) and StorageError for a server that is
    away or fails.
    """

    def __init__(self, address: str | S3Address, client: Minio | None = None) -> None:
        self.address = parse_s3_address(address) if isinstance(address, str) else address
        self._client = client or connect()

    def __str__(self) -> str:
        return str(self.address)

    def check(self) -> None:
        """Writes, reads, lists and deletes a small object: what goes wrong here would go wrong later."""
        name = f".check-{socket.gethostname()}-{os.getpid()}"
        with explained(str(self.address)):
            self._put_text(self.address.key(name), "check")
            is_read = get_bytes(self._client, self.address.bucket, self.address.key(name)) == b"check"
            is_listed = any(self._client.list_objects(self.address.bucket, prefix=self.address.key(name)))
            if not (is_read and is_listed):
                raise StorageError(f"{self.address}: does not give back what was just written; check the endpoint")
            self._client.remove_object(self.address.bucket, self.address.key(name))

    def names(self) -> list[str]:
        """The names of the complete folders, sorted."""
        with explained(str(self.address)):
            prefix = self.address.key("")
            entries = self._client.list_objects(self.address.bucket, prefix=prefix)
            folders = [entry.object_name.removeprefix(prefix)[:-1] for entry in entries if entry.object_name.endswith("/")]
            return sorted(name for name in folders if _NAME.fullmatch(name) and self._exists(self.address.key(name, COMPLETE_MARKER)))

    def upload_folder(self, folder: Path, name: str) -> None:
        """Puts a folder into the store under `name`; whatever lies there is deleted first.

        Raises:
            InputError: `folder` is none, is empty, or holds what is no file.
            StorageError: A file changed meanwhile, or the server does not keep what it was sent.
        """
        files = _files(folder)
        with explained(self._where(name)):
            self._delete(name)
            sent = {
                relative: put_file(self._client, self.address.bucket, self._key(name, relative), file) for relative, file in files.items()
            }
            if wrong := self._first_difference(name, sent):
                raise StorageError(f"{self._where(name)}/{wrong} of what was sent; see the server's log and upload the folder again")
            self._put_text(self._key(name, COMPLETE_MARKER), _Marker(files=sent).model_dump_json())

    def download_folder(self, name: str, target: Path) -> None:
        """Makes `target` the folder `name`, whole or not at all.

        Raises:
            InputError: There is no such complete folder, or `target` is there already and not an empty folder.
            DamageError: A file is missing, or not what was uploaded.
        """
        _check_is_free(target)
        with explained(self._where(name)):
            files = self._read_marker(name).files
            if wrong := self._first_difference(name, files):
                raise DamageError(f"{self._where(name)}/{wrong} of what was uploaded; take another copy")
            with staged_folder(target) as staging:
                for relative, uploaded in files.items():
                    self._download(name, relative, uploaded, staging / relative)

    def delete_folder(self, name: str) -> None:
        """Deletes a folder, complete or not; where there is none, nothing happens."""
        with explained(self._where(name)):
            self._delete(name)

    def read_text(self, name: str) -> str | None:
        """The text of that name, or None where there is none."""
        with explained(self._where(name)):
            data = get_bytes(self._client, self.address.bucket, self._key(name))
        try:
            return None if data is None else data.decode()
        except UnicodeDecodeError:
            raise DamageError(f"{self._where(name)}: is no text") from None

    def write_text(self, name: str, text: str) -> None:
        """Puts a text into the store; it takes the place of an earlier one in one step."""
        with explained(self._where(name)):
            self._put_text(self._key(name), text)

    def delete_text(self, name: str) -> None:
        """Deletes a text; where there is none, nothing happens."""
        with explained(self._where(name)):
            self._client.remove_object(self.address.bucket, self._key(name))

    def _key(self, name: str, *below: str) -> str:
        if not _NAME.fullmatch(name):
            raise InputError(f"name: must be letters, digits and '._=+-', begin with a letter or digit, got {name!r}")
        return self.address.key(name, *below)

    def _where(self, name: str) -> str:
        return f"s3://{self.address.bucket}/{self._key(name)}"

    def _put_text(self, key: str, text: str) -> None:
        data = text.encode()
        self._client.put_object(self.address.bucket, key, io.BytesIO(data), len(data))

    def _exists(self, key: str) -> bool:
        try:
            self._client.stat_object(self.address.bucket, key)
        except S3Error as error:
            if error.code == "NoSuchKey":
                return False
            raise
        return True

    def _delete(self, name: str) -> None:
        bucket, prefix = self.address.bucket, self._key(name, "")
        self._client.remove_object(bucket, self._key(name, COMPLETE_MARKER))
        forget_unfinished(self._client, bucket, prefix)
        objects = [DeleteObject(entry.object_name) for entry in self._client.list_objects(bucket, prefix=prefix, recursive=True)]
        for error in self._client.remove_objects(bucket, objects):
            raise StorageError(f"s3://{bucket}/{error.name}: cannot be deleted ({error.code}: {error.message})")

    def _read_marker(self, name: str) -> _Marker:
        data = get_bytes(self._client, self.address.bucket, self._key(name, COMPLETE_MARKER))
        if data is None:
            raise InputError(f"{self._where(name)}: holds no complete folder; upload it again or give another name")
        try:
            marker = _Marker.model_validate_json(data)
        except ValidationError:
            raise DamageError(f"{self._where(name)}/{COMPLETE_MARKER}: is no list of files; take another copy") from None
        for relative in marker.files:
            if not relative or PurePosixPath(relative).is_absolute() or {"..", "."} & set(relative.split("/")):
                raise DamageError(
                    f"{self._where(name)}/{COMPLETE_MARKER}: names a file outside the folder ({relative!r}); take another copy"
                )
        return marker

    def _first_difference(self, name: str, files: dict[str, StoredFile]) -> str | None:
        """The first file that the store does not hold in its size, and what it does hold."""
        prefix = self._key(name, "")
        entries = self._client.list_objects(self.address.bucket, prefix=prefix, recursive=True)
        sizes = {entry.object_name.removeprefix(prefix): entry.size for entry in entries}
        for relative, file in files.items():
            if sizes.get(relative) != file.size:
                held = "is missing" if relative not in sizes else f"has {sizes[relative]} bytes"
                return f"{relative}: {held}, instead of the {file.size} bytes"
        return None

    def _download(self, name: str, relative: str, uploaded: StoredFile, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        got = get_file(self._client, self.address.bucket, self._key(name, relative), target, uploaded.size)
        if got != uploaded:
            raise DamageError(
                f"{self._where(name)}/{relative}: has SHA-256 {got.sha256[:12]}, uploaded was {uploaded.sha256[:12]}; take another copy"
            )


def _files(folder: Path) -> dict[str, Path]:
    """The files below a folder, by their path from there; a link to a file counts as that file."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; give one to upload")
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            files[path.relative_to(folder).as_posix()] = path
        elif path.is_symlink() or not path.is_dir():
            raise InputError(f"{path}: is neither a file nor a folder; remove it before the upload")
    if not files:
        raise InputError(f"{folder}: holds no file; give a folder to upload")
    if COMPLETE_MARKER in files:
        raise InputError(f"{folder / COMPLETE_MARKER}: has the name of the store's own list of files; rename it")
    return files


def _check_is_free(target: Path) -> None:
    if target.is_symlink() or target.is_file() or (target.is_dir() and any(target.iterdir())):
        raise InputError(f"{target}: is there already; give a new folder or empty this one")
