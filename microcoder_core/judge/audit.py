"""Answers that solve nothing: a problem that accepts one of them has tests, or a checker, that tell too little.

Covers: answers without looking (nothing, one constant, what the input begins with, the input itself, the tests that the statement
shows); the right answers spoilt (order, case, a number off by one), which only a loose checker accepts; the problem's own known wrong
solutions.
Does not cover: mistakes that a person would make and nobody has written down.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from microcoder_core import values
from microcoder_core.judge.compare.yesno import is_yesno
from microcoder_core.judge.judge import Judge
from microcoder_core.records import Judgement, Problem, Verdict

WAITING = 64
"""Problems whose lazy answers wait for the judge at most: bounds memory."""
_LONG = 4000
"""Digits of a number that Python refuses to read."""
_NAMES = "inf, nan = float('inf'), float('nan')\n"
_BLIND_RESULTS = ("None", "True", "False", "0", "1", "''", "[]")


@dataclass(frozen=True, slots=True)
class LazyAnswer:
    """A program that is accepted only where a problem's tests or checker are weak."""

    name: str
    what: str
    """What it does, for a person."""
    program: str


@dataclass(frozen=True, slots=True)
class Audit:
    """What a problem let through."""

    problem: Problem
    accepted: tuple[LazyAnswer, ...]


def audit(problems: Iterable[Problem], judge: Judge) -> Iterator[Audit]:
    """Each problem with the lazy answers and the known wrong solutions that it accepts, in order."""
    waiting: deque[tuple[Problem, list[tuple[LazyAnswer, Future[Judgement]]]]] = deque()
    for problem in problems:
        waiting.append((problem, [(answer, judge.submit(problem, answer.program)) for answer in lazy_answers(problem)]))
        while len(waiting) > WAITING:
            yield _result(*waiting.popleft())
    while waiting:
        yield _result(*waiting.popleft())


def _result(problem: Problem, judged: list[tuple[LazyAnswer, Future[Judgement]]]) -> Audit:
    return Audit(problem, tuple(answer for answer, verdict in judged if verdict.result().verdict is Verdict.ACCEPTED))


def lazy_answers(problem: Problem) -> Iterator[LazyAnswer]:
    """The lazy programs for a problem. One of kind `asserts` shows no right answers, so that only blind ones are made for it."""
    yield from _blind(problem)
    if problem.tests:
        yield from _constant(problem)
        yield from _spoilt(problem)
    for number, program in enumerate(problem.wrong_solutions):
        yield LazyAnswer("wrong_solution", f"is the problem's wrong solution {number}", program)


def _blind(problem: Problem) -> Iterator[LazyAnswer]:
    if problem.form == "stdin":
        yield LazyAnswer("empty", "prints nothing", "pass\n")
        yield LazyAnswer("first_token", "prints the first word of the input", "import sys\nprint(*sys.stdin.read().split()[:1])\n")
        yield LazyAnswer("echo", "prints the input", "import sys\nsys.stdout.write(sys.stdin.read())\n")
        return
    for result in _BLIND_RESULTS:
        yield LazyAnswer("constant", f"returns {result}", f"def {problem.entry_point}(*given): return {result}\n")
    yield LazyAnswer("echo", "returns its first argument", f"def {problem.entry_point}(*given): return given[0]\n")


def _constant(problem: Problem) -> Iterator[LazyAnswer]:
    usual = _usual(problem)
    yield LazyAnswer("constant", f"answers {_short(usual)} always", _from_table(problem, [], usual))
    shown = [(given, right) for given, right in _pairs(problem) if _is_shown(problem, given, right)]
    if shown:
        what = f"knows the {len(shown)} of {len(problem.tests)} tests that the statement shows"
        yield LazyAnswer("samples", what, _from_table(problem, shown, usual))


def _spoilt(problem: Problem) -> Iterator[LazyAnswer]:
    kind = problem.checker.kind
    any_order = kind.startswith("unordered") or kind == "program"
    any_case = kind in ("yesno", "program") or (kind == "auto" and all(_is_yesno(test.expected) for test in problem.tests))
    for name, what, spoil, is_legal in (
        ("permuted", "gives the parts of the right answer in reverse order", _reversed, any_order),
        ("case_swapped", "gives the right answer with upper and lower case swapped", _case_swapped, any_case),
        ("off_by_one", "gives the right answer with one number off by one", _off_by_one, kind == "program"),
    ):
        answers = [(given, spoil(right)) for given, right in _pairs(problem)]
        if not is_legal and any(spoilt != right for (_, spoilt), (_, right) in zip(answers, _pairs(problem), strict=True)):
            yield LazyAnswer(name, what, _from_table(problem, answers, _usual(problem)))


def _is_yesno(answer: Any) -> bool:
    return isinstance(answer, str) and is_yesno(answer)


def _pairs(problem: Problem) -> list[tuple[Any, Any]]:
    """Input and right answer of each test, as Python values."""
    if problem.form == "stdin":
        return [(test.input, test.expected) for test in problem.tests]
    return [(values.decode(test.input), values.decode(test.expected)) for test in problem.tests]


def _usual(problem: Problem) -> Any:
    """The right answer of most tests."""
    answers = {json.dumps(test.expected, sort_keys=True): right for test, (_, right) in zip(problem.tests, _pairs(problem), strict=True)}
    return answers[Counter(json.dumps(test.expected, sort_keys=True) for test in problem.tests).most_common(1)[0][0]]


def _from_table(problem: Problem, answers: list[tuple[Any, Any]], other: Any) -> str:
    """A program that knows the answers to some inputs, and says `other` to the rest."""
    cases = "".join(f"    if given == {given!r}: return {answer!r}\n" for given, answer in answers)
    lookup = f"{_NAMES}def look_up(given):\n{cases}    return {other!r}\n"
    if problem.form == "stdin":
        return f"import sys\n{lookup}sys.stdout.write(look_up(sys.stdin.read()))\n"
    return f"{lookup}def {problem.entry_point}(*given): return look_up(list(given))\n"


def _is_shown(problem: Problem, given: Any, right: Any) -> bool:
    """Whether the statement holds a test's input and its answer, blanks aside."""
    text = " ".join(problem.statement.split())
    parts = [" ".join(part.split()) if isinstance(part, str) else repr(part) for part in (given, right)]
    if problem.form == "function":
        parts[0] = f"{problem.entry_point}({', '.join(map(repr, given))})"
    return all(part and part in text for part in parts)


def _reversed(answer: Any) -> Any:
    if isinstance(answer, str):
        lines = [" ".join(reversed(line.split())) for line in reversed(answer.splitlines())]
        return "\n".join(lines) + "\n" * answer.endswith("\n")
    return type(answer)(reversed(answer)) if isinstance(answer, list | tuple) else answer


def _case_swapped(answer: Any) -> Any:
    if isinstance(answer, str):
        return answer.swapcase()
    return type(answer)(map(_case_swapped, answer)) if isinstance(answer, list | tuple) else answer


def _off_by_one(answer: Any) -> Any:
    """`answer` with its first number one larger."""
    if isinstance(answer, list | tuple):
        return type(answer)(_with_first_changed(list(answer), _off_by_one))
    if isinstance(answer, str):
        return " ".join(_with_first_changed(answer.split(" "), _next_number))
    return answer + 1 if isinstance(answer, int | float) and not isinstance(answer, bool) else answer


def _next_number(word: str) -> str:
    digits = word.strip()
    return word.replace(digits, str(int(digits) + 1)) if digits.removeprefix("-").isdecimal() and len(digits) < _LONG else word


def _with_first_changed(parts: list[Any], change: Callable[[Any], Any]) -> list[Any]:
    for place, part in enumerate(parts):
        if (changed := change(part)) != part:
            return [*parts[:place], changed, *parts[place + 1 :]]
    return parts


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
