"""A problem made ready for many programs: inputs as bytes, methods chosen, cheap tests first."""

from __future__ import annotations

import marshal
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import Lock

from microcoder_core.judge.compare import NamedMethod, methods
from microcoder_core.judge.config import JudgeConfig
from microcoder_core.judge.execution import MIB, Limits
from microcoder_core.records import Problem
from microcoder_core.values import JsonValue, decode


@dataclass(frozen=True, slots=True)
class PreparedTest:
    """One test."""

    number: int
    """From 1, in the problem's order."""
    input: bytes
    """Text for `stdin`, the marshalled list of arguments for `function`."""
    expected: JsonValue


class OrderedTests:
    """The tests of a problem in the order to run them in."""

    def __init__(self, tests: Sequence[PreparedTest], killers_first: bool) -> None:
        self._tests = tuple(sorted(tests, key=lambda test: len(test.input)))  # stable: tests of one size keep their order
        self._killers_first = killers_first

    def __iter__(self) -> Iterator[PreparedTest]:
        return iter(self._tests)

    def __len__(self) -> int:
        return len(self._tests)

    def killed(self, killer: PreparedTest) -> None:
        """Tells that a program failed this test. Threads that run the tests meanwhile keep the order that they began with."""
        if self._killers_first and self._tests[0] is not killer:
            self._tests = (killer, *(test for test in self._tests if test is not killer))


@dataclass(frozen=True, slots=True)
class PreparedProblem:
    """What the grader needs of a problem."""

    problem: Problem
    tests: OrderedTests
    methods: tuple[NamedMethod, ...]
    limits: Limits

    @property
    def total(self) -> int:
        """Number of tests; the asserts of a problem count as one."""
        return 1 if self.problem.checker.kind == "asserts" else len(self.tests)


def prepare(problem: Problem, config: JudgeConfig) -> PreparedProblem:
    """`problem` made ready."""
    tests = [PreparedTest(number, _as_bytes(test.input), test.expected) for number, test in enumerate(problem.tests, start=1)]
    limits = Limits(
        cpu_s=problem.time_limit_s or config.time_limit_s,
        memory_mib=problem.memory_limit_mib or config.memory_limit_mib,
        address_grace_mib=config.address_grace_mib,
        output_bytes=config.output_limit_mib * MIB,
    )
    expected = [test.expected for test in problem.tests]
    ordered = OrderedTests(tests, config.order == "killers_first")
    return PreparedProblem(problem, ordered, methods(config.chain, problem.checker, problem.form, expected), limits)


def _as_bytes(value: JsonValue) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    return marshal.dumps(decode(value))


class Preparations:
    """The last few prepared problems: a group's samples ask for the same one."""

    def __init__(self, config: JudgeConfig, capacity: int = 64) -> None:
        self._config = config
        self._capacity = capacity
        self._lock = Lock()
        self._kept: OrderedDict[int, PreparedProblem] = OrderedDict()

    def get(self, problem: Problem) -> PreparedProblem:
        """The prepared form of `problem`, made at the first call."""
        with self._lock:
            kept = self._kept.get(id(problem))  # the entry holds the problem, so that its id stays its own
            if kept is not None:
                self._kept.move_to_end(id(problem))
                return kept
        made = prepare(problem, self._config)
        with self._lock:
            self._kept[id(problem)] = made
            if len(self._kept) > self._capacity:
                self._kept.popitem(last=False)
        return made
