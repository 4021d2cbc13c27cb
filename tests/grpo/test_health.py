"""What a run that goes wrong is met with."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from microcoder_core.errors import TrainingError
from microcoder_core.grpo.config import HealthConfig
from microcoder_core.grpo.health import HealthState, check_health, observe_health
from microcoder_core.records import Verdict
from tests.grpo.test_trainer import Always, trainer
from tests.tiny import tiny_config

CONFIG = HealthConfig(patience_steps=3)


def after(diversities: list[float], config: HealthConfig = CONFIG) -> HealthState:
    state = HealthState()
    for diversity in diversities:
        state = observe_health(state, config, {"microcoder/diversity": diversity})
    return state


def test_diversity_that_stays_below_its_share_stops_the_run() -> None:
    check_health(after([0.8, 0.1, 0.1]), CONFIG)
    check_health(after([0.8, 0.1, 0.1, 0.3, 0.1]), CONFIG)
    check_health(after([0.8, 0.3, 0.3, 0.3, 0.3]), CONFIG)
    with pytest.raises(TrainingError, match=r"below 0.25 of its first value .0.800. for 3 steps"):
        check_health(after([0.8, 0.1, 0.1, 0.1]), CONFIG)


def test_a_collapse_may_be_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    check_health(after([0.8, 0.1, 0.1, 0.1]), HealthConfig(patience_steps=3, on_collapse="warn"))
    assert "repeats itself" in caplog.text


def test_steps_that_teach_nothing_are_said(caplog: pytest.LogCaptureFixture) -> None:
    one = trainer(tiny_config(health={"patience_steps": 2}), rewarder=Always(Verdict.WRONG_ANSWER))
    with caplog.at_level(logging.WARNING):
        one.train()
    assert "for 2 steps no group had both right and wrong completions" in caplog.text
    assert one.state.health.useless_steps == 4


def test_a_collapsed_run_is_saved(tmp_path: Path) -> None:
    class Falling:
        values = iter([0.9, 0.1, 0.1, 0.1])

        def observe(self, groups: object) -> dict[str, float]:
            return {"microcoder/diversity": next(self.values)}

    one = trainer(tiny_config(max_steps=10, checkpoint={"every_steps": 100}, health={"patience_steps": 3}), tmp_path)
    one._watchers = (Falling(),)
    with pytest.raises(TrainingError, match="on_collapse=warn goes on"):
        one.train()
    assert (tmp_path / "checkpoints" / "step-000004").is_dir()


HANGING = """
import threading
from microcoder_core.grpo.health import hang_ends_process, still_alive
with hang_ends_process(0.5):
    for _ in range(3):
        still_alive()
        threading.Event().wait(0.3)
    threading.Event().wait(60)
"""


def test_a_hang_ends_the_process_and_says_where() -> None:
    ran = subprocess.run([sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=50, check=False)
    assert ran.returncode == 1
    assert "Timeout (0:00:00.500000)" in ran.stderr
    assert 'File "<string>", line 8' in ran.stderr
