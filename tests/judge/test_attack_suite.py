"""The attack suite: here attack by attack, and as a whole in the surroundings that pods have."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from microcoder_core.judge.judge import Judge, JudgeConfig
from microcoder_core.judge.process import MINIMUM
from microcoder_core.records import Problem, Verdict
from tests.judge.attacks import attacks
from tests.judge.container import Container

pytestmark = pytest.mark.dangerous

ATTACKS = [pytest.param(problem, program, id=name) for name, problem, program in attacks()]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def lone_judge() -> Iterator[Judge]:
    """A judge with one worker: what one program leaves, the next one meets."""
    with Judge(JudgeConfig(workers=1)) as judge:
        yield judge


@pytest.mark.parametrize(("problem", "program"), ATTACKS)
def test_attack_is_not_accepted_and_the_next_program_is_served(lone_judge: Judge, problem: Problem, program: str, total: Problem) -> None:
    judgement = lone_judge.submit(problem, program).result(timeout=60)
    assert judgement.verdict not in (Verdict.ACCEPTED, Verdict.JUDGE_ERROR), judgement.detail
    started = time.monotonic()
    look = "import os\nassert os.listdir('.') == []\ninput()\nprint(sum(map(int, input().split())))"
    assert lone_judge.submit(total, look).result(timeout=60).verdict is Verdict.ACCEPTED
    assert time.monotonic() - started < 1


AS_USER = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
SYSTEM_PYTHON = "/usr/bin/python3"
"""Which everyone may read, unlike one below /root."""


def can_be_user() -> bool:
    """Whether an ordinary user can run the judge here: root may become one, and its Python has our version and may read our packages."""
    code = f"import sys; assert sys.version_info[:2] == {sys.version_info[:2]}; import tests.judge.attack_tier"
    if os.geteuid() != 0 or shutil.which("setpriv") is None or not Path(SYSTEM_PYTHON).exists():
        return False
    return subprocess.run([*AS_USER, SYSTEM_PYTHON, "-c", code], cwd=ROOT, capture_output=True, env=user_environment()).returncode == 0


def user_environment() -> dict[str, str]:
    return {"PYTHONPATH": f"{ROOT}:{sysconfig.get_path('purelib')}", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.mark.slow
@pytest.mark.parametrize("as_user", [False, True], ids=["present user", "ordinary user"])
@pytest.mark.parametrize(
    "forbidden", [(), ("unshare",), ("landlock",), ("unshare", "landlock")], ids=["nothing", "unshare", "landlock", "both"]
)
def test_suite_holds_where_something_is_forbidden(as_user: bool, forbidden: tuple[str, ...]) -> None:
    if as_user and not can_be_user():
        pytest.skip("not root, or no Python that an ordinary user could run this with")
    if as_user:
        environment = (f"{name}={value}" for name, value in user_environment().items())
        findings = run_tier(*AS_USER, "env", *environment, python=SYSTEM_PYTHON, forbidden=forbidden)
    else:
        findings = run_tier(forbidden=forbidden)
    assert ("user_namespace" in findings["layers"]) == ("unshare" not in forbidden)
    assert ("landlock" in findings["layers"]) == ("landlock" not in forbidden)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("runsc") is None and not os.environ.get("CI"), reason="gVisor's runsc is not installed")
def test_suite_holds_inside_gvisor() -> None:
    """Landlock is absent there and nothing can be mounted."""
    environment = ["env", "OMP_NUM_THREADS=1", f"PYTHONPATH={ROOT}"]
    findings = run_tier("runsc", "--network=none", "--platform=ptrace", "do", *environment)
    assert "landlock" not in findings["layers"]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("podman") is None and not os.environ.get("CI"), reason="podman is not installed")
@pytest.mark.parametrize("forbidden", [(), ("unshare", "landlock")], ids=["nothing", "both"])
def test_suite_holds_inside_a_hardened_container(tmp_path: Path, forbidden: tuple[str, ...]) -> None:
    """Nothing can be mounted there, and the disk not written to; podman allows user namespaces, which other engines refuse."""
    *prefix, python = Container(tmp_path).command(ROOT)
    written = 'import os; print([place for place in ("/tmp", "/var/tmp", "/run", "/", ".") if os.access(place, os.W_OK)])'
    assert subprocess.run([*prefix, python, "-c", written], capture_output=True, text=True, timeout=60).stdout == "['/tmp']\n"
    findings = run_tier(*prefix, python=python, forbidden=forbidden)
    namespaces = {f"{name}_namespace" for name in ("user", "pid", "network", "ipc", "uts")}
    assert set(findings["layers"]) == {*MINIMUM, *({"read_only"} if forbidden else {"landlock", *namespaces})}


def run_tier(*prefix: str, python: str = sys.executable, forbidden: tuple[str, ...] = ()) -> dict[str, Any]:
    """The findings of the whole suite below `prefix`, in which nothing is wrong."""
    options = [part for name in forbidden for part in ("--forbid", name)]
    command = [*prefix, python, "-m", "tests.judge.attack_tier", *options]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert ran.stdout, ran.stderr
    findings: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    assert (findings["let_through"], findings["left"]) == ([], [])
    assert findings["attacks"] == len(ATTACKS)
    assert findings["slowest_after_s"] < 1
    return findings
