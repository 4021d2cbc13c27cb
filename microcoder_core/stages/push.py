"""The stage `push`: a trained model folder in; a repository of the Hugging Face hub out."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from microcoder_core.errors import InputError, MicrocoderError
from microcoder_core.sampling.hub import explain
from microcoder_core.sampling.prompt import PROMPT_FILE
from microcoder_core.stages.model_card import model_card
from microcoder_core.stages.results import PushResult
from microcoder_core.storage.stage_output import StageRecord, read_stage_record

_MODEL_FILES = (
    "*.safetensors",
    "*.safetensors.index.json",
    "config.json",
    "generation_config.json",
    "adapter_config.json",
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab*",
    "merges.txt",
    "*.model",
    "chat_template*",
    PROMPT_FILE,
)
"""Everything that loading a model reads. Nothing else of the folder leaves this machine but the metrics."""
_METRICS = "training/metrics.jsonl"
_PLACE = ("url", "patience_s", "workers")
"""Settings of the judge that say where it ran, which is nobody else's business."""


def push_model(folder: Path, repo: str, *, private: bool) -> PushResult:
    """Uploads a trained model with its tokenizer, prompt template, card, configuration and metrics, as one commit or a few.

    Args:
        folder: Output of the stage `train`.
        repo: `OWNER/NAME`; made where it is not there yet.
        private: Only those whom its owner lets may see it; a repository that is there and public is refused.

    Raises:
        InputError: No trained model, no token, or one that may not write there.
        MicrocoderError: No connection to the hub.
    """
    record = read_stage_record(folder, "train")
    files = [file for pattern in _MODEL_FILES for file in sorted(folder.glob(pattern)) if file.is_file()]
    if not any(file.suffix == ".safetensors" for file in files) or not (folder / "config.json").is_file():
        raise InputError(f"{folder}: lacks config.json or *.safetensors, so it is no whole model; give the output folder of stage train")
    if repo.count("/") != 1:
        raise InputError(f"repo: must be OWNER/NAME, got {repo!r}")
    with _staged(folder, record, files) as staged:
        url = _upload(staged, repo, private)
        uploaded = sorted(file.relative_to(staged).as_posix() for file in staged.rglob("*") if file.is_file())
    return PushResult(repo=repo, url=url, files=tuple(uploaded))


@contextlib.contextmanager
def _staged(folder: Path, record: StageRecord, files: list[Path]) -> Iterator[Path]:
    """A folder that holds exactly what is uploaded, large files as links."""
    with tempfile.TemporaryDirectory(prefix="microcoder-push-") as name:
        staged = Path(name)
        (staged / "training").mkdir()
        for file in [*files, folder / _METRICS]:
            if file.is_file():
                (staged / file.relative_to(folder)).symlink_to(file.resolve())
        (staged / "training" / "config.yaml").write_text(_public_config(record), encoding="utf-8")
        (staged / "README.md").write_text(_card(folder, record), encoding="utf-8")
        yield staged


def _card(folder: Path, record: StageRecord) -> str:
    """The card that lies in the folder, which its owner may have added to; else a new one."""
    file = folder / "README.md"
    return file.read_text(encoding="utf-8") if file.is_file() else model_card(record)


def _public_config(record: StageRecord) -> str:
    judge = {name: value for name, value in record.config.get("judge", {}).items() if name not in _PLACE}
    return yaml.safe_dump({**record.config, "judge": judge}, sort_keys=False, allow_unicode=True)


def _upload(staged: Path, repo: str, private: bool) -> str:
    from huggingface_hub import HfApi, get_token
    from huggingface_hub.utils.tqdm import disable_progress_bars

    if not sys.stderr.isatty():
        disable_progress_bars()
    try:
        if (token := get_token()) is None:
            raise InputError("token: there is none for the hub; set HF_TOKEN, or run `hf auth login`, with one that may write")
        api = HfApi(token=token)
        api.whoami()  # asks once: a hub that cannot be reached is known before an upload that would try again and again
        url = str(api.create_repo(repo, private=private or None, exist_ok=True))
        _check_private(api, repo, private)
        api.upload_folder(repo_id=repo, folder_path=staged, commit_message="Upload a model trained by microcoder")
    except InputError:
        raise
    except Exception as error:
        if (problem := explain(error, repo)) is None:
            raise
        kind = InputError if problem.is_input else MicrocoderError
        raise kind(f"push: {problem.said}; {problem.advice}") from None
    return url


def _check_private(api: Any, repo: str, private: bool) -> None:
    if private and not api.model_info(repo).private:
        raise InputError(f"private: {repo} is there already and public; make it private in its settings, or give another name")
