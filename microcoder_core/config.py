"""Configuration: frozen pydantic models, YAML files, and `key=value` on the command line.

Every field's docstring says what it means, its unit, and where its default comes from. An unknown key is an error.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args
from urllib.parse import urlsplit

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from microcoder_core.errors import InputError
from microcoder_core.records import first_complaint


class Config(BaseModel):
    """Base of every stage's configuration."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _numbers_are_no_truth_values(cls, values: Any) -> Any:
        """Refuses `max_tests=true`, which would be read as 1."""
        if isinstance(values, Mapping):
            for name, value in values.items():
                if isinstance(value, bool) and name in cls.model_fields and not _takes_bool(cls.model_fields[name].annotation):
                    raise ValueError(f"{name}: must not be true or false, got {str(value).lower()}")
        return values

    def to_yaml(self) -> str:
        """The resolved configuration, as saved with a run."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)

    def fingerprint(self) -> str:
        """SHA-256 (hex) of the resolved configuration."""
        return hashlib.sha256(json.dumps(self.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()

    def flat(self) -> dict[str, Any]:
        """Every leaf by its dotted name, as tracked."""
        return dict(_leaves(self.model_dump(mode="json"), ""))


def _takes_bool(annotation: Any) -> bool:
    return annotation in (bool, Any) or any(map(_takes_bool, get_args(annotation)))


class _YamlLoader(yaml.SafeLoader):
    """Reads dates as text, as the fields that hold dates are (`date_from=2024-01-01`)."""


_YamlLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}

ConfigType = TypeVar("ConfigType", bound=Config)


def load_config(kind: type[ConfigType], files: Iterable[Path] = (), overrides: Iterable[str] = ()) -> ConfigType:
    """A configuration from YAML files, merged left to right, then `key=value` overrides, then the defaults of `kind`.

    Args:
        overrides: Such as `loss.clip_high=0.28`; the value is read as YAML.

    Raises:
        InputError: A file that is missing or no YAML mapping, an unknown key, a value that breaks a rule.
    """
    return build_config(kind, load_values(files, overrides))


def load_values(files: Iterable[Path] = (), overrides: Iterable[str] = (), below: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The merged values of YAML files and overrides, over those of `below`; keys are not checked yet."""
    merged: dict[str, Any] = dict(below or {})
    for file in files:
        merged = _merge(merged, read_yaml_mapping(file))
    for override in overrides:
        merged = _merge(merged, _parse_override(override))
    return merged


def build_config(kind: type[ConfigType], values: Mapping[str, Any], where: str = "configuration") -> ConfigType:
    """`kind` made from `values`; raises InputError with one line where a rule is broken."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        known = ", ".join(kind.model_fields)
        raise InputError(f"{where}: {first_complaint(error)} (keys of {kind.__name__}: {known})") from None


def read_yaml_mapping(file: Path) -> dict[str, Any]:
    """The mapping in a YAML file."""
    try:
        content = _load_yaml(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot be read ({error}); give the path of a YAML file") from None
    except yaml.YAMLError as error:
        raise InputError(f"{file}: not YAML ({' '.join(str(error).split())})") from None
    if not isinstance(content, dict):
        raise InputError(f"{file}: must hold a mapping of keys to values, got {type(content).__name__}")
    return content


def _load_yaml(text: str) -> Any:
    return yaml.load(text, Loader=_YamlLoader)


def _parse_override(override: str) -> dict[str, Any]:
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise InputError(f"override: must be key=value, got {override!r}")
    try:
        value = _load_yaml(text)
    except yaml.YAMLError:
        raise InputError(f"override {key}: the value is not YAML, got {text!r}") from None
    for part in reversed(key.split(".")):
        value = {part: value}
    return dict(value)


def _merge(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        if isinstance(value, dict) and isinstance(merged.get(key), dict):
            value = _merge(merged[key], value)
        merged[key] = value
    return merged


def _leaves(values: Mapping[str, Any], prefix: str) -> Iterable[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def check_web_address(value: str, *, example: str, token_variable: str) -> str:
    """`value` without a slash at its end, where it is the address of a server; for validators of settings.

    Raises:
        ValueError: It is none, or holds a password, which settings are no place for: they are tracked.
    """
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"must be an address such as {example}")
    if parts.username or parts.password:
        raise ValueError(f"must hold no password; give a token in {token_variable}")
    return value.rstrip("/")
