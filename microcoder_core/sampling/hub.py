"""The Hugging Face hub: whether it gives a model's files, and what its errors mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from microcoder_core.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class HubProblem:
    """Why the hub did not do what it was asked for."""

    said: str
    """What failed."""
    advice: str
    """What to do."""
    is_input: bool = True
    """Whether what it was asked for is at fault, rather than the network or the hub."""


def problem_of_model(name: str) -> HubProblem | None:
    """Why the hub would not give the files of a model; None where it would.

    Asks once. transformers itself asks for each of several files up to six times, so that without a network it takes 50 s to say so;
    neither it nor huggingface_hub has a setting for that.

    Raises:
        InputError: A name that no repository can have.
    """
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.errors import HFValidationError, RemoteEntryNotFoundError

    try:
        get_hf_file_metadata(hf_hub_url(name, "config.json"))
    except RemoteEntryNotFoundError:  # a repository of something else, of which transformers says more
        return None
    except HFValidationError:
        raise InputError(
            f"model: {name!r} is no folder here and no id of the hub; give a folder, an id such as Qwen/Qwen3-1.7B, or 'nano'"
        ) from None
    except Exception as error:
        return explain(error, name)
    return None


def explain(error: Exception, repo: str) -> HubProblem | None:
    """What an error of huggingface_hub means; None for one that is neither the hub's nor the network's.

    Args:
        repo: What was asked for, such as `Qwen/Qwen3-1.7B`.
    """
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, HFValidationError, OfflineModeIsEnabled, RepositoryNotFoundError

    if isinstance(error, HFValidationError):
        return HubProblem(said=f"{repo!r} cannot be the name of a repository", advice="give OWNER/NAME")
    if isinstance(error, OfflineModeIsEnabled):
        return HubProblem(said="HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set", advice="unset it to use the hub")
    if isinstance(error, GatedRepoError):
        terms = f"accept its terms at {_endpoint()}/{repo}"
        return HubProblem(said=f"{repo} is gated and {_whose_access()}", advice=f"{terms}, then {_token_advice()}")
    if isinstance(error, RepositoryNotFoundError):
        said = f"the hub knows no repository {repo}, or it is private and {_whose_access()}"
        return HubProblem(said=said, advice=f"check the name; for a private one, {_token_advice()}")
    if isinstance(error, HfHubHTTPError):
        return _of_status(error, repo)
    if not _is_of_network(error):
        return None
    said = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    return HubProblem(said=f"no connection to {_endpoint()} ({said})", advice="check the network, a proxy, and HF_ENDPOINT", is_input=False)


def _is_of_network(error: Exception) -> bool:
    """By name, since huggingface_hub has changed its HTTP package (httpx, httpx2), in which these errors are called alike."""
    return isinstance(error, (ConnectionError, TimeoutError)) or any(kind.__name__ == "TransportError" for kind in type(error).__mro__)


def _of_status(error: Any, repo: str) -> HubProblem:
    status = error.response.status_code
    if status == 401:
        return HubProblem(said="the hub does not accept the token (401)", advice=_token_advice())
    if status == 403:
        said = f"the token does not allow this for {repo} (403)"
        return HubProblem(said=said, advice=f"{_token_advice()} of a user who may, with the right to do it")
    is_input = status < 500 and status != 429
    advice = "check HF_ENDPOINT" if is_input else "try again later"
    return HubProblem(said=f"the hub at {_endpoint()} answered {status}", advice=advice, is_input=is_input)


def _endpoint() -> str:
    from huggingface_hub import constants

    return str(constants.ENDPOINT)


def _whose_access() -> str:
    from huggingface_hub import get_token

    return "there is no token" if get_token() is None else "the token has no access to it"


def _token_advice() -> str:
    return "set HF_TOKEN, or run `hf auth login`, with a token"
