"""A client of an S3 server: where it is, with which credentials, and how long what fails is tried again.

Covers: connections that are refused, broken or silent, and the answers 429, 500, 502, 503 and 504, for every request.
Does not cover: an answer whose body breaks off while it is read (`s3_transfer` does), a server that sends a byte now and then, and
HTTP proxies. A name server that is silent adds the resolver's own time.
"""

from __future__ import annotations

import configparser
import contextlib
import itertools
import os
import random
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree as ET

import certifi
import urllib3
from minio import Minio
from minio.credentials import AWSConfigProvider, ChainedProvider, EnvAWSProvider, IamAwsProvider
from minio.error import InvalidResponseError, MinioException, S3Error

from microcoder_core.errors import InputError, StorageError
from microcoder_core.storage.s3_address import ENDPOINT_VARIABLES, endpoint_from_environment

PATIENCE_S = 120.0
"""Chosen: a server of one replica that is restarted is back by then."""
CONNECTIONS = 16

_FIRST_TIMEOUT = urllib3.Timeout(connect=3, read=6)
_FIRST_PATIENCE_S = 5.0
_TIMEOUT = urllib3.Timeout(connect=5, read=60)
_RETRIED_STATUSES = frozenset({429, 500, 502, 503, 504})
_LONGEST_PAUSE_S = 5.0
_ADVICE = {
    "NoSuchBucket": "no such bucket; make it, or give another address",
    "AccessDenied": "access denied; let the policy of these credentials read, write, list and delete there (where it may not ask for the "
    "bucket's location, set AWS_REGION)",
    "AllAccessDisabled": "access denied; the account or the bucket is closed",
    "InvalidAccessKeyId": "the server does not know the access key; check AWS_ACCESS_KEY_ID and the endpoint",
    "SignatureDoesNotMatch": "the secret key does not fit the access key; check AWS_SECRET_ACCESS_KEY",
    "ExpiredToken": "the credentials have expired; get new ones",
    "InvalidToken": "the server refuses the session token; check AWS_SESSION_TOKEN",
    "AuthorizationHeaderMalformed": "the bucket is in another region; set AWS_REGION",
    "PermanentRedirect": "the bucket is in another region; set AWS_REGION",
    "RequestTimeTooSkewed": "the clocks of this machine and the server differ too much; set them",
}


class PatientPool(urllib3.PoolManager):
    """HTTP connections whose failing requests are tried again, with growing pauses, until `patience_s` have passed since the first failure.

    A server that has never answered gets less: some ten seconds in all, for most likely its address is wrong.
    """

    def __init__(self, endpoint: str, patience_s: float) -> None:
        super().__init__(maxsize=CONNECTIONS, cert_reqs="CERT_REQUIRED", ca_certs=_certificates())
        self._endpoint = endpoint
        self._patience_s = patience_s
        self._has_answered = False
        self.is_given_up = threading.Event()
        """While it is set, what fails is not tried again."""

    def urlopen(self, method: str, url: str, redirect: bool = True, **options: Any) -> Any:  # type: ignore[override]
        """The answer to one request.

        Raises:
            StorageError: There was none in time, or only ones that say that the server fails.
        """
        first_failure: float | None = None
        for attempt in itertools.count(1):
            answer = self._attempt(method, url, options)
            if not isinstance(answer, str):
                return answer
            now = time.monotonic()
            first_failure = now if first_failure is None else first_failure
            patience_s = self._patience_s if self._has_answered else min(self._patience_s, _FIRST_PATIENCE_S)
            pause = min(_LONGEST_PAUSE_S, 0.1 * 2 ** min(attempt, 10)) * random.uniform(0.5, 1)
            if now + pause > first_failure + patience_s or self.is_given_up.wait(pause):
                raise StorageError(f"{self._endpoint}: {answer} ({attempt} attempts); {self._advice()}")
        raise AssertionError("endless")

    def _attempt(self, method: str, url: str, options: dict[str, Any]) -> Any:
        """The answer, or in words what went wrong and may be tried again."""
        options |= {"retries": False, "timeout": _TIMEOUT if self._has_answered else _FIRST_TIMEOUT}
        try:
            response = super().urlopen(method, url, redirect=False, **options)
        except urllib3.exceptions.SSLError as error:
            raise InputError(
                f"{self._endpoint}: no secure connection ({_words(error)}); "
                "set AWS_CA_BUNDLE to the file of its certificate authority, or use http://"
            ) from None
        except urllib3.exceptions.HTTPError as error:
            return f"cannot be reached ({_words(error)})" if not self._has_answered else f"does not answer ({_words(error)})"
        self._has_answered = True
        if response.status not in _RETRIED_STATUSES:
            return response
        with contextlib.suppress(urllib3.exceptions.HTTPError):
            response.drain_conn()
        response.release_conn()
        return f"fails with HTTP status {response.status}"

    def _advice(self) -> str:
        if self._has_answered:
            return "see the server's log; the same command may work later"
        return f"check the address ({' / '.join(ENDPOINT_VARIABLES)}) and that the server runs"


def connect(endpoint: str | None = None, *, patience_s: float = PATIENCE_S) -> Minio:
    """A client with the environment's credentials. Nothing is asked of the server yet.

    Args:
        endpoint: The server's URL; None for the environment's.
        patience_s: How long a request that fails is tried again.

    Raises:
        InputError: An endpoint that is no URL, or no credentials.
    """
    url, variable = (endpoint, None) if endpoint else endpoint_from_environment()
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.username:
        raise InputError(f"{variable or 'endpoint'}: must be http://HOST[:PORT] or https://HOST[:PORT], got {_without_user(url)}")
    pool = PatientPool(f"{parts.scheme}://{parts.netloc}", patience_s)
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    credentials = _credentials()
    try:
        return Minio(parts.netloc, secure=parts.scheme == "https", region=region, http_client=pool, credentials=credentials)
    except ValueError as error:  # minio's word on the region or the host
        raise InputError(f"{url}: {error}; check the endpoint and AWS_REGION") from None


def _credentials() -> ChainedProvider:
    """What the environment, the AWS credentials file, a web identity or the machine's role gives, whichever is there first."""
    key, secret = bool(os.environ.get("AWS_ACCESS_KEY_ID")), bool(os.environ.get("AWS_SECRET_ACCESS_KEY"))
    if key != secret:
        there, absent = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")[:: 1 if key else -1]
        raise InputError(f"{absent}: is not set, and {there} is; set both")
    provider = ChainedProvider([EnvAWSProvider(), AWSConfigProvider(), _role()])
    try:
        provider.retrieve()
    except (ValueError, OSError, KeyError, configparser.Error, urllib3.exceptions.HTTPError) as error:
        answer = f": {_words(error)}" if _is_role_announced() else ""
        raise InputError(
            "no S3 credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (tried: these, the AWS credentials file, a web identity or "
            f"the machine's role{answer})"
        ) from None
    return provider


def _is_role_announced() -> bool:
    return any(name.startswith(("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_")) for name in os.environ)


def _role() -> IamAwsProvider:
    """The credentials of a web identity, a container or a machine."""
    seconds = 10 if _is_role_announced() else 1  # elsewhere than on AWS, nothing listens at the address that a machine's role comes from
    http = urllib3.PoolManager(timeout=urllib3.Timeout(connect=seconds, read=seconds), retries=urllib3.Retry(1))
    is_identity = bool(os.environ.get("AWS_WEB_IDENTITY_TOKEN_FILE"))
    return IamAwsProvider(http_client=http, custom_endpoint=os.environ.get("AWS_ENDPOINT_URL_STS") if is_identity else None)


@contextlib.contextmanager
def explained(where: str) -> Iterator[None]:
    """Turns what the client raises into one line that says what to do.

    Args:
        where: The address that the block is about.

    Raises:
        InputError: What a person must change: bucket, rights, credentials.
        StorageError: Anything else, which may work later.
    """
    try:
        yield
    except InputError:
        raise
    except S3Error as error:
        if error.code in _ADVICE:
            raise InputError(f"{where}: {_ADVICE[error.code]}") from None
        raise StorageError(f"{where}: the server answers {error.code} ({error.message})") from None
    except InvalidResponseError as error:
        raise StorageError(
            f"{where}: what answers is not an S3 server ({' '.join(str(error).split())[:200]}); check the endpoint"
        ) from None
    except (ET.ParseError, ValueError) as error:  # also minio's word on credentials that it cannot renew
        raise StorageError(f"{where}: {_words(error)}; check the endpoint and the credentials") from None
    except (MinioException, urllib3.exceptions.HTTPError) as error:
        raise StorageError(f"{where}: {type(error).__name__}: {_words(error)}") from None


def pool_of(client: Minio) -> PatientPool:
    """The connections of a client that `connect` made."""
    pool = client._http
    assert isinstance(pool, PatientPool)
    return pool


def _certificates() -> str:
    return os.environ.get("AWS_CA_BUNDLE") or os.environ.get("SSL_CERT_FILE") or certifi.where()


def _without_user(url: str) -> str:
    return url.rpartition("@")[2] or "nothing"


def _words(error: Exception) -> str:
    """The message without the connection that urllib3 puts before it."""
    return " ".join(str(error).split()).rpartition("): ")[2]
