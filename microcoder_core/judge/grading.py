"""From runs to a verdict: the grader holds the expected outputs, compares, and never runs foreign code."""

from __future__ import annotations

import json
import marshal
import signal
from dataclasses import dataclass, field

from microcoder_core.judge.asserts import Conversation, run_asserts
from microcoder_core.judge.compare import accepting_method
from microcoder_core.judge.execution import Execution, Limits, RunFiles, run_function, run_stdin
from microcoder_core.judge.preparation import PreparedProblem, PreparedTest
from microcoder_core.judge.process import ZygoteProcess
from microcoder_core.judge.sandbox.child import CANDIDATE_GONE
from microcoder_core.judge.zygotes import Zygotes
from microcoder_core.records import Judgement, Verdict
from microcoder_core.values import JsonValue, check_tagged

_DETAIL_LIMIT = 200
_CHECKER_CPU_S = 10.0


@dataclass(slots=True)
class Score:
    """What is known of a program so far."""

    passed: int = 0
    cpu_s: float = 0.0
    memory_mib: float = 0.0
    method: str | None = None
    failure: tuple[Verdict, str] | None = field(default=None)

    def saw(self, run: Execution) -> None:
        """Takes in what a run used."""
        self.cpu_s = max(self.cpu_s, run.cpu_s)
        self.memory_mib = max(self.memory_mib, run.memory_mib)


def grade(zygotes: Zygotes, prepared: PreparedProblem, program: str) -> Judgement:
    """The judgement of one program. Raises ZygoteDied where a worker process was lost."""
    score = Score()
    source = program.encode("utf-8", "surrogatepass")
    if prepared.problem.checker.kind == "asserts":
        _grade_asserts(zygotes, prepared, source, score)
    else:
        _grade_tests(zygotes, prepared, source, score)
    verdict, detail = score.failure or (Verdict.ACCEPTED, "")
    return Judgement(
        problem_id=prepared.problem.problem_id,
        verdict=verdict,
        tests_passed=score.passed,
        tests_total=prepared.total,
        time_s=round(score.cpu_s, 4),
        memory_mib=round(score.memory_mib, 1),
        accepting_method=score.method if verdict is Verdict.ACCEPTED else None,
        detail=_one_line(detail),
        sandbox=zygotes.layers,
    )


def _grade_tests(zygotes: Zygotes, prepared: PreparedProblem, source: bytes, score: Score) -> None:
    zygote = zygotes.for_programs()
    if b"numpy" in source:
        zygote.preload("numpy")
    with RunFiles(source) as files:
        for test in prepared.tests:
            run = _run(zygote, prepared, files, test)
            score.saw(run)
            score.failure = failure_of(run, prepared.limits) or _compare(zygotes, prepared, test, run, score)
            if score.failure:
                verdict, detail = score.failure
                where = "" if verdict is Verdict.COMPILE_ERROR else f"test {test.number}: "
                score.failure = (verdict, where + detail)
                prepared.tests.killed(test)
                return
            score.passed += 1


def _run(zygote: ZygoteProcess, prepared: PreparedProblem, files: RunFiles, test: PreparedTest) -> Execution:
    if prepared.problem.form == "stdin":
        return run_stdin(zygote, files, test.input, prepared.limits)
    return run_function(zygote, files, test.input, prepared.problem.entry_point or "", prepared.limits)


def failure_of(run: Execution, limits: Limits) -> tuple[Verdict, str] | None:
    """How a run failed by itself, whatever it answered. Time goes before memory, memory before output, output before errors."""
    frame = run.frame or {}
    raised = frame.get("raised")
    if "compile_error" in frame and run.exit_code == 1:
        return Verdict.COMPILE_ERROR, str(frame["compile_error"])
    if run.killed == "cpu" or run.cpu_s > limits.cpu_s:
        return Verdict.TIME_LIMIT_EXCEEDED, f"over {limits.cpu_s:g} s of CPU time"
    if run.killed == "wall":
        return Verdict.TIME_LIMIT_EXCEEDED, f"over {limits.wall_s:g} s of elapsed time"
    if raised == "MemoryError" or run.memory_mib > limits.memory_mib or (run.signal == signal.SIGKILL and run.killed is None):
        return Verdict.MEMORY_LIMIT_EXCEEDED, f"over {limits.memory_mib} MiB"
    if run.overflowed or run.signal == signal.SIGXFSZ:
        return Verdict.OUTPUT_LIMIT_EXCEEDED, f"over {limits.output_bytes >> 20} MiB of output"
    if raised is not None:
        message = str(frame.get("message", ""))
        return Verdict.RUNTIME_ERROR, f"{raised}: {message}" if message else str(raised)
    if "missing" in frame:
        return Verdict.RUNTIME_ERROR, f"defines no function {frame['missing']}"
    if run.signal is not None:
        return Verdict.RUNTIME_ERROR, f"ended by signal {run.signal}"
    if run.exit_code != 0:
        return Verdict.RUNTIME_ERROR, f"exit code {run.exit_code}"
    return None


def _compare(zygotes: Zygotes, prepared: PreparedProblem, test: PreparedTest, run: Execution, score: Score) -> tuple[Verdict, str] | None:
    if prepared.problem.form == "stdin":
        output: JsonValue = run.output.decode("utf-8", "surrogateescape")
    else:
        frame = run.frame or {}
        if "unserialisable" in frame:
            return Verdict.WRONG_ANSWER, f"returned a {frame['unserialisable']}"
        if "value" not in frame:
            return Verdict.RUNTIME_ERROR, "ended without a result"
        output = frame["value"]
    if prepared.problem.checker.kind == "program":
        return _ask_checker(zygotes, prepared, test, output, score)
    score.method = accepting_method(prepared.methods, test.expected, output)
    return None if score.method else (Verdict.WRONG_ANSWER, "the answer differs")


def _ask_checker(
    zygotes: Zygotes, prepared: PreparedProblem, test: PreparedTest, output: JsonValue, score: Score
) -> tuple[Verdict, str] | None:
    """Runs the problem's own checker, in a worker process that no program ever runs in."""
    try:
        check_tagged(output)
    except (ValueError, RecursionError):
        return Verdict.WRONG_ANSWER, "returned what is no value"
    arguments = json.dumps([prepared.problem.tests[test.number - 1].input, test.expected, output]).encode()
    limits = Limits(cpu_s=_CHECKER_CPU_S, memory_mib=1024, address_grace_mib=512, output_bytes=1 << 16)
    code = (prepared.problem.checker.code or "").encode()
    with RunFiles(code) as files:
        run = run_function(zygotes.for_checkers(), files, marshal.dumps(arguments), "check", limits)
    failure = failure_of(run, limits)
    if failure or run.frame is None or "value" not in run.frame:
        return Verdict.JUDGE_ERROR, f"the checker failed: {failure[1] if failure else 'no result'}"
    score.method = "program"
    return None if run.frame["value"] is True else (Verdict.WRONG_ANSWER, "the checker refused the answer")


def _grade_asserts(zygotes: Zygotes, prepared: PreparedProblem, source: bytes, score: Score) -> None:
    code = (prepared.problem.checker.code or "").encode()
    talk = run_asserts(zygotes, source, code, prepared.problem.entry_point or "", prepared.limits)
    score.saw(talk.program)
    score.method = "asserts"
    score.failure = _failure_of_conversation(talk, prepared.limits)
    score.passed = 0 if score.failure else 1


def _failure_of_conversation(talk: Conversation, limits: Limits) -> tuple[Verdict, str] | None:
    own = failure_of(talk.program, limits)
    failed = talk.result.get("failed")
    if own is not None or talk.result.get("passed") is True:
        return own
    if "unsendable" in talk.result:
        return Verdict.JUDGE_ERROR, f"the asserts pass an argument that {talk.result['unsendable']}"
    if "broken" in talk.result:
        return Verdict.JUDGE_ERROR, f"the asserts define no check(candidate): {talk.result['broken']}"
    if failed == "MemoryError":
        return Verdict.MEMORY_LIMIT_EXCEEDED, f"over {limits.memory_mib} MiB"
    if failed and talk.result.get("from_candidate"):
        return Verdict.RUNTIME_ERROR, f"{failed}: {talk.result.get('message')}"
    if failed:
        return Verdict.WRONG_ANSWER, f"asserts: {failed}"
    if talk.caller.exit_code == CANDIDATE_GONE:
        return Verdict.RUNTIME_ERROR, "ended without a result"
    if talk.caller.killed in ("cpu", "wall"):
        return Verdict.TIME_LIMIT_EXCEEDED, "the asserts took too long on its results"
    return Verdict.JUDGE_ERROR, "the asserts ended without a result"


def _one_line(text: str) -> str:
    line = " ".join("".join(each if each.isprintable() else " " for each in text[: 4 * _DETAIL_LIMIT]).split())
    return line if len(line) <= _DETAIL_LIMIT else line[: _DETAIL_LIMIT - 3] + "..."
