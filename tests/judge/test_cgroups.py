"""Control groups of the workers: where they can be made, what they bound, that none is left."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from microcoder_core.judge import cgroups
from microcoder_core.judge.cgroups import LAYERS, PREFIX, ControlGroup, groups_left
from microcoder_core.judge.judge import Judge, JudgeConfig
from microcoder_core.judge.process import remove_leftovers
from microcoder_core.records import Checker, Problem, TestCase, Verdict
from tests.processes import groups_of_this_process

MIB = 1 << 20
V1_MEMORY, V1_PIDS = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.oom_control"), ("pids.max",)
V2 = ("memory.max", "memory.swap.max", "memory.events", "pids.max")


class Tree:
    """A made-up tree of groups, whose folders get files as the kernel's do."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.files: dict[Path, tuple[str, ...]] = {}
        monkeypatch.setattr(Path, "mkdir", lambda path, exist_ok: self.make(path, exist_ok))
        monkeypatch.setattr(Path, "rmdir", lambda path: self.remove(path))

    def make(self, path: Path, exist_ok: bool) -> None:
        os.makedirs(path, exist_ok=exist_ok)
        if path.name.startswith(PREFIX):
            for name in ("cgroup.procs", *self.files.get(path.parent, ())):
                (path / name).write_text("")

    def remove(self, path: Path) -> None:
        for file in path.iterdir():
            file.unlink()
        os.rmdir(path)

    def give(self, path: str, names: tuple[str, ...]) -> Path:
        """Has groups made in `path` hold the files `names`."""
        place = self.folder / path
        os.makedirs(place, exist_ok=True)
        self.files[place] = names
        return place

    def system(self, groups: str, *mounts: str) -> dict[str, Path]:
        """The two files of /proc."""
        (self.folder / "groups").write_text(groups)
        (self.folder / "mounts").write_text("".join(mount.replace("TREE", str(self.folder)) + "\n" for mount in mounts))
        return {"groups": self.folder / "groups", "mounts": self.folder / "mounts"}


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    return Tree(tmp_path, monkeypatch)


def test_version_1_has_a_folder_a_controller(tree: Tree) -> None:
    memory, pids = tree.give("memory/pod/one", V1_MEMORY), tree.give("pids/", V1_PIDS)
    system = tree.system(
        "8:pids:/\n4:memory:/pod/one\n0::/\n",
        "35 31 0:32 / TREE/memory rw,relatime - cgroup cgroup rw,memory",
        "40 31 0:37 / TREE/pids rw shared:7 - cgroup cgroup rw,pids",
    )
    group = ControlGroup.make(PREFIX + "x", **system)
    assert len(group.open_to_join()) == 2
    assert group.layers == []  # nobody has joined
    group.limit_memory(100)
    (memory / f"{PREFIX}x/cgroup.procs").write_text("7\n")
    (pids / f"{PREFIX}x/cgroup.procs").write_text("7\n")
    limit = str((100 + cgroups.BESIDE_PROGRAM_MIB) * MIB)
    assert [(memory / f"{PREFIX}x" / name).read_text() for name in V1_MEMORY] == [limit, limit, ""]
    assert (pids / f"{PREFIX}x/pids.max").read_text() == str(cgroups.MAX_TASKS)
    assert group.layers == list(LAYERS.values())
    (memory / f"{PREFIX}x/memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
    assert group.memory_kills() == 3
    assert len(groups_left(**system)) == 2
    group.remove()
    assert groups_left(**system) == []


@pytest.mark.parametrize("given", ["unified/user/session", "unified/user"], ids=["below the own group", "beside it"])
def test_version_2_is_used_where_the_files_are_there(tree: Tree, given: str) -> None:
    tree.give("unified/user/session", ())
    place = tree.give(given, V2)
    system = tree.system("0::/user/session\n", "41 31 0:38 / TREE/unified rw - cgroup2 cgroup2 rw")
    group = ControlGroup.make(PREFIX + "x", **system)
    group.limit_memory(8)
    folder = place / f"{PREFIX}x"
    assert (folder / "memory.max").read_text() == str((8 + cgroups.BESIDE_PROGRAM_MIB) * MIB)
    assert (folder / "memory.swap.max").read_text() == "0"
    (folder / "cgroup.procs").write_text("7\n")
    (folder / "memory.events").write_text("oom 1\noom_kill 1\noom_group_kill 0\n")
    assert (group.layers, group.memory_kills()) == (list(LAYERS.values()), 1)
    group.remove()
    assert groups_left(**system) == []


@pytest.mark.parametrize(
    ("groups", "mounts"),
    [
        ("0::/\n", "41 31 0:38 / TREE/unified rw - cgroup2 cgroup2 rw"),  # version 2 whose controllers stay with version 1
        ("4:memory:/elsewhere\n", "35 31 0:32 /pod TREE/memory rw - cgroup cgroup rw,memory"),  # a mount that does not show the own group
        ("4:memory:/\n", ""),
        ("", "35 31 0:32 / TREE/memory rw - cgroup cgroup rw,memory"),
    ],
)
def test_without_controllers_there_is_no_group_and_nothing_is_left(tree: Tree, groups: str, mounts: str) -> None:
    tree.give("unified", ())
    tree.give("memory", V1_MEMORY)
    system = tree.system(groups, *mounts.splitlines())
    group = ControlGroup.make(PREFIX + "x", **system)
    group.limit_memory(8)
    assert (group.open_to_join(), group.layers, group.memory_kills()) == ([], [], 0)
    group.remove()
    assert list(tree.folder.rglob(f"{PREFIX}*")) == []


@pytest.fixture(scope="module")
def grouped_judge() -> Iterator[Judge]:
    with Judge(JudgeConfig(workers=1)) as judge:
        if not set(LAYERS.values()) <= set(judge.layers):
            pytest.skip("this process may not make control groups")
        yield judge


def problem(memory_limit_mib: int) -> Problem:
    tests = (TestCase(input="", expected="done"),)
    return Problem(
        problem_id="p", statement="s", form="stdin", tests=tests, checker=Checker(kind="tokens"), memory_limit_mib=memory_limit_mib
    )


def test_memory_stays_near_the_limit(grouped_judge: Judge) -> None:
    program = "held = [bytearray(1 << 20) for _ in range(500)]\nprint('done')"  # within the address space of 64 + 512 MiB
    judgement = grouped_judge.submit(problem(64), program).result(timeout=60)
    assert judgement.verdict is Verdict.MEMORY_LIMIT_EXCEEDED
    assert judgement.memory_mib < 64 + cgroups.BESIDE_PROGRAM_MIB + 16
    assert grouped_judge.submit(problem(1024), program).result(timeout=60).verdict is Verdict.ACCEPTED


def test_a_program_that_may_bring_down_the_worker_is_no_failure_of_the_judge(monkeypatch: pytest.MonkeyPatch, grouped_judge: Judge) -> None:
    monkeypatch.setattr(cgroups, "BESIDE_PROGRAM_MIB", 0)
    program = "for number in range(60): open(str(number), 'wb').write(bytes(1 << 20))\nprint('done')"
    with Judge(JudgeConfig(workers=1, memory_limit_mib=48)) as judge:  # whose groups have the limit before anything is in them
        for _ in range(3):
            judgement = judge.submit(problem(48), program).result(timeout=60)
            # what it writes is not its own memory, and not every kernel counts it at once: it may also end well
            assert judgement.verdict in (Verdict.MEMORY_LIMIT_EXCEEDED, Verdict.ACCEPTED), judgement.detail
            assert judge.submit(problem(48), "print('done')").result(timeout=60).verdict is Verdict.ACCEPTED


def test_threads_are_bounded(grouped_judge: Judge) -> None:
    program = (
        "import threading, time\nstarted = 0\ntry:\n  while started < 2000:\n"
        "    threading.Thread(target=time.sleep, args=(5,), daemon=True).start()\n    started += 1\n"
        f"except RuntimeError: pass\nassert 100 < started < {cgroups.MAX_TASKS}, started\nprint('done')"
    )
    judgement = grouped_judge.submit(problem(1024), program).result(timeout=60)
    assert judgement.verdict is Verdict.ACCEPTED, judgement.detail


def test_no_group_is_left(grouped_judge: Judge) -> None:
    before = groups_of_this_process()
    with Judge(JudgeConfig(workers=2)) as judge:
        judge.submit(problem(1024), "print('done')").result(timeout=60)
        assert groups_of_this_process() > before
    assert groups_of_this_process() == before


def test_groups_of_killed_judges_are_removed(grouped_judge: Judge) -> None:
    program = (
        "import os, signal\nfrom microcoder_core.judge.judge import Judge, JudgeConfig\n"
        "with Judge(JudgeConfig(workers=1)): os.kill(os.getpid(), signal.SIGKILL)"
    )
    with subprocess.Popen([sys.executable, "-c", program]) as killed:
        killed.wait(timeout=60)
    assert any(f"-{killed.pid}-" in group.name for group in groups_left())
    remove_leftovers()
    assert not any(f"-{killed.pid}-" in group.name for group in groups_left())
