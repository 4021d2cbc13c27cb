"""Names and texts as MLflow takes them."""

from pathlib import Path

import pytest

from microcoder_core.tracking.events import clean_key, clean_label, param_text, tag_text
from microcoder_core.tracking.model_record import model_uri


@pytest.mark.parametrize(
    ("key", "cleaned"),
    [
        ("pass@1", "pass_at_1"),
        ("clip_ratio/low_mean", "clip_ratio/low_mean"),
        ("share (s)", "share _s_"),
        ("a//b/../c", "a/c"),
        ("/loss/", "loss"),
        ("../x", "x"),
        ("gr\u00f6\u00dfe", "gr__e"),
        ("", "_"),
        ("x" * 300, "x" * 250),
    ],
)
def test_keys_are_made_fit(key: str, cleaned: str) -> None:
    from mlflow.utils.validation import _validate_metric_name

    assert clean_key(key) == cleaned
    _validate_metric_name(clean_key(key))


def test_texts_are_cut_and_labels_hold_no_quote() -> None:
    assert param_text("x" * 7000) == "x" * 5997 + "..."
    assert len(tag_text("x" * 9000)) == 8000
    assert clean_label("it's `run` 1") == "it_s__run__1"


def test_a_model_is_where_the_artifact_store_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("MICROCODER_MODEL_URI", raising=False)
    assert model_uri(tmp_path) == str(tmp_path)
    monkeypatch.setenv("MICROCODER_MODEL_URI", "minio://mlpipeline/v2/model")
    assert model_uri(tmp_path) == "s3://mlpipeline/v2/model"
