"""`microcoder doctor`: what is installed, which sandbox layers hold, what can be reached."""

from __future__ import annotations

import json
import os
import platform
import shutil
import socket
import subprocess
from importlib.metadata import PackageNotFoundError, version
from typing import Any
from urllib.parse import urlsplit

import click

from microcoder_core import __version__
from microcoder_core.cpus import available_cpus
from microcoder_core.errors import InputError, JudgeError, StorageError
from microcoder_core.judge.config import JudgeConfig
from microcoder_core.judge.judge import Judge
from microcoder_core.storage.s3_address import endpoint_from_environment
from microcoder_core.tracking.addresses import without_password

PACKAGES = (
    "accelerate",
    "click",
    "gguf",
    "jinja2",
    "kfp",
    "kfp-kubernetes",
    "matplotlib",
    "minio",
    "mlflow",
    "numpy",
    "peft",
    "pyarrow",
    "pydantic",
    "safetensors",
    "torch",
    "transformers",
    "vllm",
)
_REACH_TIMEOUT_S = 2.0
_DEFAULT_PORTS = {"http": 80, "https": 443}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for machines.")
@click.option("--store", metavar="s3://BUCKET/PREFIX", help="Write, read, list and delete a small object there.")
def doctor(as_json: bool, store: str | None) -> None:
    """Say what is installed, which sandbox layers hold, and what can be reached."""
    findings = examine(store)
    click.echo(json.dumps(findings) if as_json else "\n".join(_lines(findings)))


def examine(store: str | None = None) -> dict[str, Any]:
    """The findings, by area.

    Args:
        store: Address of a store to try.
    """
    return {
        "microcoder": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": available_cpus(),
        "packages": {name: _version(name) for name in PACKAGES},
        "sandbox": _sandbox(),
        "gpus": _gpus(),
        "mlflow": _endpoint("MLFLOW_TRACKING_URI"),
        "s3": _endpoint(endpoint_from_environment()[1]),
        "store": None if store is None else {"address": store, "problem": _store_problem(store)},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _sandbox() -> dict[str, Any]:
    try:
        with Judge(JudgeConfig(workers=1)) as judge:
            return {"layers": judge.layers, "meets_minimum": True, "problem": None}
    except JudgeError as error:
        return {"layers": (), "meets_minimum": False, "problem": str(error)}


def _gpus() -> list[str]:
    """Names of the GPUs that the driver knows."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    command = [program, "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in answer.stdout.splitlines() if line.strip()]


def _store_problem(address: str) -> str | None:
    """Why a store cannot be used; null where it can."""
    try:
        from microcoder_core.storage.s3 import FolderStore

        FolderStore(address).check()
    except (InputError, StorageError) as error:
        return str(error)
    except ImportError as error:
        return f"{error.name} is not installed"
    return None


def _endpoint(variable: str | None) -> dict[str, Any] | None:
    """The address in an environment variable, and whether a server listens there; null where the variable is not set."""
    address = os.environ.get(variable) if variable else None
    if not address:
        return None
    return {"variable": variable, "address": without_password(address), "reachable": _is_reachable(address)}


def _is_reachable(address: str) -> bool:
    """Whether a server accepts connections; an address that is no server's (sqlite, a file) always is."""
    parts = urlsplit(address if "://" in address else f"//{address}")
    if parts.scheme not in ("", "http", "https") or parts.hostname is None:
        return True
    try:
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme, 443)
        with socket.create_connection((parts.hostname, port), timeout=_REACH_TIMEOUT_S):
            return True
    except (OSError, ValueError):
        return False


def _lines(findings: dict[str, Any]) -> list[str]:
    sandbox = findings["sandbox"]
    packages = [f"  {name:16}{found or 'not installed'}" for name, found in findings["packages"].items()]
    return [
        f"microcoder {findings['microcoder']}, Python {findings['python']}, {findings['cpus']} CPUs, {findings['platform']}",
        "packages",
        *packages,
        f"sandbox: {', '.join(sandbox['layers']) or 'none'} ({'meets' if sandbox['meets_minimum'] else 'below'} the minimum)",
        *([f"  {sandbox['problem']}"] if sandbox["problem"] else []),
        f"GPUs: {', '.join(findings['gpus']) or 'none'}",
        _endpoint_line("MLflow", findings["mlflow"], "MLFLOW_TRACKING_URI is not set: runs go to a local database"),
        _endpoint_line("S3", findings["s3"], "no endpoint is set: s3:// is that of AWS"),
        *([_store_line(findings["store"])] if findings["store"] else []),
    ]


def _endpoint_line(name: str, found: dict[str, Any] | None, absent: str) -> str:
    if found is None:
        return f"{name}: {absent}"
    return f"{name}: {found['address']} ({'reachable' if found['reachable'] else 'not reachable'}; {found['variable']})"


def _store_line(found: dict[str, Any]) -> str:
    return f"store: {found['problem'] or found['address'] + ' takes and gives back what is written'}"
