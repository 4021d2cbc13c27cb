"""Configuration from YAML files and key=value."""

import pytest
from pydantic import Field

from microcoder_core.config import Config, load_config
from microcoder_core.errors import InputError
from microcoder_core.stages.curate import CurateConfig


class Loss(Config):
    clip_high: float = Field(default=0.2, gt=0)
    """Upper clip."""


class Example(Config):
    steps: int = 10
    """Steps."""
    date_from: str | None = None
    """First date."""
    loss: Loss = Loss()
    """The loss."""
    ks: tuple[int, ...] = (1,)
    """Several."""


def test_defaults_files_and_overrides_merge_in_order(tmp_path):
    (tmp_path / "a.yaml").write_text("steps: 1\nloss: {clip_high: 0.3}\n")
    (tmp_path / "b.yaml").write_text("steps: 2\nks: [1, 5]\n")
    config = load_config(Example, [tmp_path / "a.yaml", tmp_path / "b.yaml"], ["loss.clip_high=1e-3"])
    assert config == Example(steps=2, loss=Loss(clip_high=0.001), ks=(1, 5))


def test_saved_configuration_loads_to_the_same(tmp_path):
    config = Example(steps=3, date_from="2024-01-01")
    (tmp_path / "a.yaml").write_text(config.to_yaml())
    assert load_config(Example, [tmp_path / "a.yaml"]) == config
    assert load_config(Example, [tmp_path / "a.yaml"]).fingerprint() == config.fingerprint() != Example().fingerprint()


def test_dates_are_text(tmp_path):
    (tmp_path / "a.yaml").write_text("date_from: 2024-01-01\n")
    assert load_config(Example, [tmp_path / "a.yaml"]).date_from == "2024-01-01"
    assert load_config(Example, [], ["date_from=2024-01-01"]).date_from == "2024-01-01"


def test_flat_names_every_leaf():
    assert Example().flat() == {"steps": 10, "date_from": None, "loss.clip_high": 0.2, "ks": [1]}


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        ("stepz=1", "stepz: unknown key.*keys of Example: steps"),
        ("loss.clip=1", r"loss\.clip: unknown key"),
        ("steps=many", "steps: .*got 'many'"),
        ("steps=1.5", "steps: "),
        ("loss.clip_high=0", r"loss\.clip_high: "),
        ("loss=3", "loss: "),
        ("steps", "must be key=value, got 'steps'"),
        ("=1", "must be key=value"),
        ("steps=[", "steps: the value is not YAML"),
    ],
)
def test_bad_override_is_one_clear_line(override, complaint):
    with pytest.raises(InputError, match=complaint) as caught:
        load_config(Example, [], [override])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [None, "", "- a", "a: [", "a: 1\n b: 2", b"\xff"])
def test_bad_file_is_one_clear_line(tmp_path, content):
    file = tmp_path / "a.yaml"
    if content is not None:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=r"a\.yaml") as caught:
        load_config(Example, [file])
    assert "\n" not in str(caught.value)


def test_true_is_no_number():
    with pytest.raises(InputError, match="max_tests: must not be true or false, got true"):
        load_config(CurateConfig, overrides=["constraints.max_tests=true"])
    assert load_config(CurateConfig, overrides=["verify.references=false"]).verify.references is False
