"""Where an S3 store is: the server, the bucket, the place in it. Imports no client."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from microcoder_core.errors import InputError

ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "MLFLOW_S3_ENDPOINT_URL")
"""Where the server is, in the order in which they are asked."""
AWS_ENDPOINT = "https://s3.amazonaws.com"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


@dataclass(frozen=True, slots=True)
class S3Address:
    """A place in a bucket."""

    bucket: str
    prefix: str = ""
    """Without a slash at either end."""

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

    def key(self, *names: str) -> str:
        """The name of an object below this place."""
        return "/".join([*([self.prefix] if self.prefix else []), *names])


def parse_s3_address(text: str) -> S3Address:
    """The bucket and prefix of `s3://BUCKET[/PREFIX]`; Kubeflow's `minio://` means the same.

    Raises:
        InputError: It is none.
    """
    scheme, separator, rest = text.partition("://")
    bucket, _, prefix = rest.partition("/")
    prefix = prefix.removesuffix("/")
    if scheme not in ("s3", "minio") or not separator or not _BUCKET.fullmatch(bucket):
        raise InputError(
            f"store: must be s3://BUCKET/PREFIX with a bucket of 3 to 63 small letters, digits, dots and hyphens, got {text!r}"
        )
    if prefix and any(part in ("", ".", "..") for part in prefix.split("/")):
        raise InputError(f"store: the prefix must have no empty part, '.' or '..', got {text!r}")
    return S3Address(bucket, prefix)


def endpoint_from_environment() -> tuple[str, str | None]:
    """The server's URL and the variable that names it; that of AWS, and None, where none does."""
    variable = next((name for name in ENDPOINT_VARIABLES if os.environ.get(name)), None)
    return (os.environ[variable], variable) if variable else (AWS_ENDPOINT, None)
