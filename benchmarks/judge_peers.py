"""The evaluators that the judge is measured against, each as a function from (problem, program) to "accepted or not".

`make bench-judge` installs them into build/peers, without what they depend on for other purposes.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from microcoder_core import values
from microcoder_core.judge.compare import exact, tokens
from microcoder_core.records import Problem

PEERS = Path(__file__).resolve().parents[1] / "build" / "peers"
Accepts = Callable[[Problem, str], bool]
TIME_LIMIT_S = 4

_CALL = """
import json, sys
source, entry, arguments = json.load(sys.stdin)
space = {"__name__": "program"}
exec(source, space)
print(json.dumps(space[entry](*arguments)))
"""


def load_peer(name: str, folder: str) -> ModuleType:
    """A package out of build/peers under another name, so that the project around it is not imported."""
    file = PEERS / folder / "__init__.py"
    if not file.is_file():
        raise SystemExit(f"{file} is missing: run `make bench-judge`")
    spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=[str(file.parent)])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def prime_code() -> Accepts:
    """Verl's reward for code (prime_code), as its trainer calls it: `continuous=True`."""
    score = load_peer("prime_code", "verl/utils/reward_score/prime_code").compute_score

    def accepts(problem: Problem, program: str) -> bool:
        tests: dict[str, Any] = {"inputs": [], "outputs": []}
        if problem.form == "function":
            tests["fn_name"] = problem.entry_point
        for test in problem.tests:
            if problem.form == "function":
                assert isinstance(test.input, list)
                tests["inputs"].append("\n".join(json.dumps(argument) for argument in test.input))
                tests["outputs"].append(json.dumps(test.expected))
            else:
                tests["inputs"].append(test.input)
                tests["outputs"].append(test.expected)
        with _Silence(), tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):  # it runs programs as they are
            success, _ = score(program, tests, continuous=True)
        return success is True or success == 1.0

    return accepts


class _Silence:
    """Inside, nothing of this process and of those that it starts is shown."""

    def __enter__(self) -> None:
        self._kept = os.dup(1), os.dup(2)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        os.close(null)

    def __exit__(self, *_: object) -> None:
        for number, kept in enumerate(self._kept, start=1):
            os.dup2(kept, number)
            os.close(kept)


def fresh_process() -> Accepts:
    """A new `python -I -S` a test, with the same limits and no sandbox; stops at the first test that fails."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (TIME_LIMIT_S, TIME_LIMIT_S))
        resource.setrlimit(resource.RLIMIT_AS, (1536 << 20, 1536 << 20))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def run(command: list[str], text: str, folder: str) -> str | None:
        options: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 3 * TIME_LIMIT_S + 1}
        try:
            ran = subprocess.run([sys.executable, "-I", "-S", *command], input=text, preexec_fn=limit, cwd=folder, **options)
        except subprocess.TimeoutExpired:
            return None
        return ran.stdout if ran.returncode == 0 else None

    def passes(problem: Problem, program: str, test: Any, folder: str) -> bool:
        if problem.form == "stdin":
            (Path(folder) / "main.py").write_text(program)
            output = run(["main.py"], test.input, folder)
            return output is not None and tokens.same_tokens(test.expected, output)
        output = run(["-c", _CALL], json.dumps([program, problem.entry_point, test.input]), folder)
        return output is not None and exact.same_value(test.expected, json.loads(output.splitlines()[-1]))

    def accepts(problem: Problem, program: str) -> bool:
        with tempfile.TemporaryDirectory() as folder:
            return all(passes(problem, program, test, folder) for test in problem.tests)

    return accepts


def is_plain_json(problem: Problem) -> bool:
    """Whether all that goes in and out is JSON as it stands: what the peers can be given."""
    return all(values.decode(part) == part for test in problem.tests for part in (test.input, test.expected))


def versions() -> dict[str, str]:
    """Version of each peer by name."""
    found = (folder.name.removesuffix(".dist-info").rpartition("-") for folder in PEERS.glob("*.dist-info"))
    return {name: version for name, _, version in found}
