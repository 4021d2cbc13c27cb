import pytest

from microcoder_core.tracking.addresses import without_password


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://user:secret@host:5000/a", "http://host:5000/a"),
        ("no answer from https://token@host, nor from http://b", "no answer from https://host, nor from http://b"),
        ("sqlite:////tmp/a@b.db", "sqlite:////tmp/a@b.db"),
        ("postgresql://u:p@ss@db/mlflow", "postgresql://db/mlflow"),
        ("postgresql://u:p@db/mlflow", "postgresql://db/mlflow"),
    ],
)
def test_no_password_is_shown(text: str, shown: str) -> None:
    assert without_password(text) == shown
