"""Processors that this process may use."""

import os
from pathlib import Path

import pytest

from microcoder_core import cpus


@pytest.mark.parametrize(
    ("file", "content", "quota"),
    [
        ("cpu.max", "150000 100000\n", 1.5),
        ("cpu.max", "max 100000\n", None),
        ("cpu.max", "nonsense", None),
        ("cpu/cpu.cfs_quota_us", "50000\n", 0.5),
        ("cpu/cpu.cfs_quota_us", "-1\n", None),
    ],
)
def test_quota_of_either_version_is_read(tmp_path: Path, file: str, content: str, quota: float | None) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    (tmp_path / file).write_text(content)
    assert cpus.cgroup_quota(tmp_path) == quota


def test_affinity_and_quota_bound_the_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.setattr(cpus, "_CGROUP", tmp_path)
    assert cpus.available_cpus() == 8
    (tmp_path / "cpu.max").write_text("250000 100000\n")
    assert cpus.available_cpus() == 3
    (tmp_path / "cpu.max").write_text("10000 100000\n")
    assert cpus.available_cpus() == 1
