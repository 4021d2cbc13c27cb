"""The judge service and its client, over real connections: answers, refusals, turns, what happens when one side dies."""

import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from microcoder_core.errors import InputError, JudgeError
from microcoder_core.judge import client as client_module
from microcoder_core.judge.client import JudgeClient
from microcoder_core.judge.config import TOKEN_VARIABLE, JudgeConfig
from microcoder_core.judge.judge import open_judge
from microcoder_core.judge.service.requests import KnownProblems, batch_items
from microcoder_core.records import Checker, Judgement, Problem, TestCase, Verdict
from microcoder_core.stages.curate import CurateConfig, curate
from microcoder_core.storage.datasets import content_sha256
from microcoder_core.tracking import NullTracker
from tests.processes import workers_of

LINE_TIMEOUT_S = 60
MICROCODER = [sys.executable, "-c", "from microcoder_core.cli.main import main; main()"]


class Service:
    """`microcoder judge serve` in a process of its own."""

    def __init__(self, *options: str, token: str | None = None, port: int = 0) -> None:
        command = [*MICROCODER, "judge", "serve", "--port", str(port), *options]
        environment = {key: value for key, value in os.environ.items() if key != TOKEN_VARIABLE} | (
            {TOKEN_VARIABLE: token} if token else {}
        )
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        assert self.process.stdout is not None
        lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=lambda: lines.put(self.process.stdout.readline()), daemon=True).start()  # type: ignore[union-attr]
        line = lines.get(timeout=LINE_TIMEOUT_S)
        assert line.startswith("listening on http://127.0.0.1:"), line + (self.process.stderr.read() if self.process.stderr else "")
        self.url = line.split()[2]
        self.port = int(self.url.rpartition(":")[2])

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Its exit code, and what it said."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        _, said = self.process.communicate(timeout=60)
        return self.process.returncode, said


@contextlib.contextmanager
def serving(*options: str, token: str | None = None, port: int = 0) -> Iterator[Service]:
    service = Service(*options, token=token, port=port)
    try:
        yield service
    finally:
        service.stop(signal.SIGKILL)


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with serving("--workers", "2") as running:
        yield running


def problem(name: str = "p", expected: str = "done", **fields: Any) -> Problem:
    tests = (TestCase(input="7\n", expected=expected),)
    return Problem(problem_id=name, statement="s", form="stdin", tests=tests, checker=Checker(kind="tokens"), **fields)


def row(one: Problem) -> dict[str, Any]:
    return one.model_dump(mode="json", exclude_defaults=True)


def test_answers_are_those_of_the_judge_in_this_process(service: Service, judge: Any, double: Problem) -> None:
    programs = [
        (double, "def double(x):\n    return 2 * x", "right"),
        (double, "def double(x):\n    return x", "wrong"),
        (double, "def double(x) return", "broken"),
        (double, None, "none"),
        (problem(), "print('\udcff')", "surrogate"),
        (problem(), "print('done')", None),
    ]
    with JudgeClient(JudgeConfig(url=service.url)) as remote:
        assert remote.layers == judge.layers
        answers = list(remote.judge_many(programs))
    measured = {"time_s": 0, "memory_mib": 0}
    assert [one.model_copy(update=measured) for one in answers] == [one.model_copy(update=measured) for one in judge.judge_many(programs)]


def test_one_program_without_a_client(service: Service) -> None:
    sent = {"problem": row(problem()), "program": "print('done')", "program_id": "a"}
    answer = Judgement.model_validate(httpx.post(f"{service.url}/v1/judge", json=sent).raise_for_status().json())
    assert (answer.verdict, answer.program_id, answer.tests_passed) == (Verdict.ACCEPTED, "a", 1)


def test_batch_answers_line_by_line_as_they_come(service: Service) -> None:
    slow, fast = "import time; time.sleep(1); print('done')", "print('done')"
    sent = {"problems": [row(problem())], "programs": [{"problem": 0, "program": one} for one in (slow, fast, fast)]}
    with httpx.stream("POST", f"{service.url}/v1/batch", json=sent, timeout=30) as response:
        assert response.headers["content-type"].startswith("application/x-ndjson")
        rows = [json.loads(line) for line in response.iter_lines() if line.strip()]
    assert [one["index"] for one in rows][-1] == 0
    assert sorted(one["index"] for one in rows) == [0, 1, 2]
    assert {one["judgement"]["verdict"] for one in rows} == {"accepted"}


def test_a_long_wait_is_filled_with_empty_lines() -> None:
    with serving("--workers", "1", "heartbeat_s=0.1") as running:
        sent = {"problems": [row(problem())], "programs": [{"problem": 0, "program": "import time; time.sleep(1); print('done')"}]}
        with httpx.stream("POST", f"{running.url}/v1/batch", json=sent, timeout=30) as response:
            assert response.read().count(b"\n") >= 5


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("judge", "{", "request: not JSON"),
        ("judge", "[]", "request: must be a JSON object, got list"),
        ("judge", '{"problem": NaN}', "request: not JSON (NaN is not JSON)"),
        ("judge", "[" * 100_000, "request: not JSON"),
        ("judge", '{"problem": {"problem_id": "a"}}', "problem: statement: Field required"),
        ("judge", '{"problem": 3}', "problem: must be a JSON object, got int"),
        ("judge", '{"program": "x", "limit": 3}', "limit: unknown key; the keys are problem, program, program_id"),
        ("batch", '{"problems": [], "programs": []}', "programs: must hold at least one program"),
        ("batch", '{"problems": {}, "programs": []}', "problems: must be a list, got dict"),
        ("batch", '{"programs": []}', "problems: must be a list, got NoneType"),
        (
            "batch",
            '{"problems": [], "programs": [{"problem": 0}]}',
            "programs.0.problem: must be one of the 0 problems, counted from 0, got 0",
        ),
        ("batch", '{"problems": [], "programs": [{"problem": -1}]}', "programs.0: problem: Input should be greater than or equal to 0"),
        ("batch", '{"problems": [], "programs": [{"code": ""}]}', "programs.0: "),
    ],
)
def test_bad_request_is_told_what_is_wrong(service: Service, path: str, body: str, message: str) -> None:
    response = httpx.post(f"{service.url}/v1/{path}", content=body)
    assert response.status_code == 422
    assert response.json()["error"].startswith(message)


def test_too_large_requests_are_refused_however_they_come() -> None:
    with serving("--workers", "1", "--max-request-mib", "1", "--max-programs", "3") as running:
        large = json.dumps({"problem": row(problem()), "program": "#" * (1 << 20)}).encode()
        announced = httpx.post(f"{running.url}/v1/judge", content=large)
        chunked = httpx.post(f"{running.url}/v1/judge", content=iter([large[:1000], large[1000:]]))
        many = {"problems": [row(problem())], "programs": [{"problem": 0}] * 4}
        assert [announced.status_code, chunked.status_code] == [413, 413]
        assert announced.json()["error"] == "request: must be at most 1 MiB; send several requests"
        assert httpx.post(f"{running.url}/v1/batch", json=many).status_code == 413
        with JudgeClient(JudgeConfig(url=running.url)) as remote:  # which keeps to what the service takes
            verdicts = [remote.submit(problem(), f"print('done')  # {n}{'#' * 200_000}").result(timeout=60).verdict for n in range(9)]
            assert set(verdicts) == {Verdict.ACCEPTED}
            refused = remote.submit(problem(), "#" * (1 << 20)).result(timeout=60)
            assert (refused.verdict, "at most 1 MiB" in refused.detail) == (Verdict.JUDGE_ERROR, True)


def test_a_full_queue_says_when_to_come_again_and_the_client_does() -> None:
    with serving("--workers", "1", "--max-programs", "4") as running:
        slow = "import time; time.sleep(1.5); print('done')"
        sent = {"problems": [row(problem())], "programs": [{"problem": 0, "program": f"{slow} # {n}"} for n in range(4)]}
        with httpx.stream("POST", f"{running.url}/v1/batch", json=sent, timeout=30):
            refused = httpx.post(f"{running.url}/v1/judge", json={"problem": row(problem()), "program": "print('done')"})
            assert refused.status_code == 429
            assert 1 <= int(refused.headers["Retry-After"]) <= 60
            assert "the queue is full" in refused.json()["error"]
            with JudgeClient(JudgeConfig(url=running.url)) as remote:
                assert remote.submit(problem(), "print('done')").result(timeout=60).verdict is Verdict.ACCEPTED
        assert "429" in httpx.get(f"{running.url}/metrics").text


def test_caller_that_leaves_makes_room() -> None:
    with serving("--workers", "1", "--max-programs", "50") as running:
        sent = {
            "problems": [row(problem())],
            "programs": [{"problem": 0, "program": f"import time; time.sleep(.3) # {n}"} for n in range(50)],
        }
        with httpx.stream("POST", f"{running.url}/v1/batch", json=sent, timeout=30) as response:
            assert response.status_code == 200
        started = time.monotonic()
        with JudgeClient(JudgeConfig(url=running.url)) as remote:
            assert remote.submit(problem(), "print('done')").result(timeout=60).verdict is Verdict.ACCEPTED
        assert time.monotonic() - started < 8  # 50 of them would have taken 15 s


def test_a_small_request_does_not_wait_for_a_large_one() -> None:
    with serving("--workers", "1") as running:
        sent = {
            "problems": [row(problem())],
            "programs": [{"problem": 0, "program": f"import time; time.sleep(.2) # {n}"} for n in range(60)],
        }
        with httpx.stream("POST", f"{running.url}/v1/batch", json=sent, timeout=60):
            started = time.monotonic()
            answer = httpx.post(f"{running.url}/v1/judge", json={"problem": row(problem()), "program": "print('done')"}, timeout=60)
            assert answer.json()["verdict"] == "accepted"
            assert time.monotonic() - started < 6


@pytest.mark.parametrize(("sent", "status"), [(None, 401), ("Bearer other", 401), ("secret", 401), ("Bearer secret", 200)])
def test_token_is_asked_for(secret_service: Service, sent: str | None, status: int) -> None:
    headers = {"Authorization": sent} if sent else {}
    response = httpx.post(f"{secret_service.url}/v1/judge", json={"problem": row(problem()), "program": "print('done')"}, headers=headers)
    assert response.status_code == status
    assert (response.headers.get("WWW-Authenticate") == "Bearer") == (status == 401)
    assert httpx.get(f"{secret_service.url}/v1/info", headers=headers).status_code == status
    for open_to_all in ("healthz", "readyz", "metrics", "docs", "openapi.json"):
        assert httpx.get(f"{secret_service.url}/{open_to_all}", headers=headers).status_code == 200


@pytest.fixture(scope="module")
def secret_service() -> Iterator[Service]:
    with serving("--workers", "1", token="secret") as running:
        yield running


def test_client_sends_the_token_of_its_environment(secret_service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    config = JudgeConfig(url=secret_service.url)
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    with pytest.raises(JudgeError, match=f"bearer token.*set {TOKEN_VARIABLE}"), JudgeClient(config):
        pass
    monkeypatch.setenv(TOKEN_VARIABLE, "secret")
    with JudgeClient(config) as remote:
        assert remote.submit(problem(), "print('done')").result(timeout=60).verdict is Verdict.ACCEPTED


def test_client_refuses_a_service_with_other_settings(service: Service) -> None:
    with pytest.raises(JudgeError, match=r"judge\.chain: the service at .* judges with 'guarded', asked for is 'strict'"):
        open_judge(JudgeConfig(url=service.url, chain="strict")).__enter__()


@pytest.mark.parametrize("url", ["judge:8080", "ftp://judge", "http://user:secret@judge:8080", "http://"])
def test_url_must_be_an_address_without_a_password(url: str) -> None:
    with pytest.raises(ValueError, match="must") as raised:
        JudgeConfig(url=url)
    assert "url" in str(raised.value)


def test_settings_that_do_not_change_verdicts_leave_the_fingerprint_alone() -> None:
    assert (
        JudgeConfig(url="http://a/", workers=3, patience_s=1).without_place().fingerprint() == JudgeConfig().without_place().fingerprint()
    )
    assert JudgeConfig(chain="strict").without_place().fingerprint() != JudgeConfig().without_place().fingerprint()


def test_health_readiness_and_metrics(service: Service) -> None:
    assert httpx.get(f"{service.url}/healthz").json() == {"status": "ok"}
    assert httpx.get(f"{service.url}/readyz").json()["status"] == "ready"
    before = counted(service)
    httpx.post(f"{service.url}/v1/judge", json={"problem": row(problem()), "program": "print('other')"})
    after = counted(service)
    assert (
        after['microcoder_judge_programs_total{verdict="wrong_answer"}']
        == before['microcoder_judge_programs_total{verdict="wrong_answer"}'] + 1
    )
    assert after["microcoder_judge_waiting_programs"] == 0
    assert after["microcoder_judge_workers"] == 2
    assert after['microcoder_judge_layer{layer="seccomp"}'] == 1


def counted(service: Service) -> Counter[str]:
    lines = httpx.get(f"{service.url}/metrics").text.splitlines()
    return Counter({name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))})  # type: ignore[arg-type]


def test_readiness_fails_where_no_program_can_be_run() -> None:
    with serving("--workers", "1") as running:
        assert httpx.get(f"{running.url}/readyz").status_code == 200
        os.kill(running.process.pid, signal.SIGCONT)
        for pid in workers_of(running.process.pid):
            os.kill(pid, signal.SIGSTOP)
        response = httpx.get(f"{running.url}/readyz", timeout=30)
        assert response.json()["status"] == "busy"  # nobody can tell a stopped worker from one at work
        for pid in workers_of(running.process.pid):
            os.kill(pid, signal.SIGKILL)
        assert httpx.get(f"{running.url}/readyz", timeout=30).json()["status"] == "ready"  # a lost worker is replaced


def test_page_names_every_record_it_refers_to(service: Service) -> None:
    page = httpx.get(f"{service.url}/openapi.json").json()
    text = json.dumps(page)
    for name in {part.split('"')[0] for part in text.split('"#/components/schemas/')[1:]}:
        assert name in page["components"]["schemas"], name
    body = page["paths"]["/v1/batch"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body == {"$ref": "#/components/schemas/Batch"}
    assert set(page["paths"]) == {"/healthz", "/readyz", "/metrics", "/v1/info", "/v1/judge", "/v1/batch"}
    docs = httpx.get(f"{service.url}/docs").text
    assert "http://" not in docs.replace(service.url, "")
    assert "https://" not in docs  # the page needs nothing from elsewhere


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stopping_gives_every_answer_first(number: int) -> None:
    with serving("--workers", "1") as running:
        sent = {
            "problems": [row(problem())],
            "programs": [{"problem": 0, "program": f"import time; time.sleep(.2) # {n}"} for n in range(10)],
        }
        with httpx.stream("POST", f"{running.url}/v1/batch", json=sent, timeout=60) as response:
            lines = response.iter_lines()
            next(lines)
            running.process.send_signal(number)
            assert len(list(lines)) == 9
        exit_code, said = running.stop()
        assert (exit_code, "every program that was taken was answered" in said) == (0, True)


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGTERM, 143), (signal.SIGINT, 3)])
def test_what_is_not_answered_in_time_is_told_by_the_exit_code(number: int, exit_code: int) -> None:
    with serving("--workers", "1", "--drain", "0.5") as running:
        sent = {
            "problems": [row(problem())],
            "programs": [{"problem": 0, "program": f"import time; time.sleep(2) # {n}"} for n in range(9)],
        }
        with contextlib.suppress(httpx.HTTPError), httpx.stream("POST", f"{running.url}/v1/batch", json=sent, timeout=60) as response:
            running.process.send_signal(number)
            response.read()
        running.process.wait(timeout=60)
        ended, said = running.stop()
        assert ended == exit_code
        assert "programs were not answered" in said


def test_a_service_killed_in_the_middle_of_a_batch_loses_and_doubles_no_answer() -> None:
    right, total = {0: Verdict.ACCEPTED, 1: Verdict.WRONG_ANSWER}, 300
    came: Counter[str] = Counter()
    running = Service("--workers", "2")
    try:
        with JudgeClient(JudgeConfig(url=running.url)) as remote:
            verdicts = []
            for number in range(total):
                verdict = remote.submit(problem(), f"print({['done', 'other'][number % 2]!r})  # {number}", str(number))
                verdict.add_done_callback(lambda done: came.update([str(done.result().program_id)]))
                verdicts.append(verdict)
            for _ in range(2):
                so_far = came.total()
                while came.total() < so_far + 30:
                    time.sleep(0.005)
                running.stop(signal.SIGKILL)
                assert came.total() < total
                running = Service("--workers", "2", port=running.port)
            answers = [verdict.result(timeout=60) for verdict in verdicts]
    finally:
        running.stop(signal.SIGKILL)
    assert came == Counter(map(str, range(total)))
    assert [answer.verdict for answer in answers] == [right[number % 2] for number in range(total)]


class Answering(BaseHTTPRequestHandler):
    """A service that is wrong in a way of its own each time; `plan` is a list of what to do with each batch."""

    plan: list[Callable[["Answering", list[dict[str, Any]]], None]]
    asked: list[int]

    def do_GET(self) -> None:
        settings = JudgeConfig().verdict_settings()
        self.reply(200, json.dumps({"layers": ["x"], "settings": settings, "max_programs": 99, "max_request_bytes": 1 << 20}).encode())

    def do_POST(self) -> None:
        sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["programs"]
        self.asked.append(len(sent))
        self.plan.pop(0)(self, sent)

    def reply(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


def lines(sent: list[dict[str, Any]], indices: Any) -> bytes:
    answers = [{"index": n, "judgement": {"problem_id": "p", "program_id": sent[n]["program_id"], "verdict": "accepted"}} for n in indices]
    return "".join(json.dumps(answer) + "\n" for answer in answers).encode()


PLANS: dict[str, Callable[[Answering, list[dict[str, Any]]], None]] = {
    "nothing": lambda server, sent: server.reply(200, b""),
    "half": lambda server, sent: server.reply(200, lines(sent, range(len(sent) // 2))),
    "twice": lambda server, sent: server.reply(200, lines(sent, [0, 0, 0])),
    "of others": lambda server, sent: server.reply(200, lines(sent, [0]).replace(b'"index": 0', b'"index": 98')),
    "cut off": lambda server, sent: server.reply(200, lines(sent, [0]) + b'{"index": 1, "judg'),
    "mixed up": lambda server, sent: server.reply(200, lines(sent, [0]).replace(b'"index": 0', b'"index": 1')),
    "no answers": lambda server, sent: server.reply(200, b'{"index": 0}\n[]\n'),
    "no judgement": lambda server, sent: server.reply(200, b'{"index": 0, "judgement": {"verdict": "great"}}\n'),
    "hung up": lambda server, sent: server.connection.shutdown(socket.SHUT_RDWR),
    "500": lambda server, sent: server.reply(500, b"oops"),
    "502": lambda server, sent: server.reply(502, b"<html>"),
    "503": lambda server, sent: server.reply(503, b'{"error": "stopping"}'),
    "429": lambda server, sent: server.reply(429, b'{"error": "full"}', Retry_After="0"),
}


@contextlib.contextmanager
def answering(*plan: Callable[[Answering, list[dict[str, Any]]], None]) -> Iterator[tuple[str, list[int]]]:
    kind = type("Planned", (Answering,), {"plan": list(plan), "asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", kind.asked  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("fault", PLANS)
def test_whatever_goes_wrong_is_asked_again_until_each_has_one_answer(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_PAUSE", lambda state: 0.0)
    monkeypatch.setattr(client_module, "_CONNECTIONS", 1)
    good = lambda server, sent: server.reply(200, lines(sent, range(len(sent))))  # noqa: E731
    with answering(PLANS[fault], PLANS[fault], good, good, good) as (url, asked):
        remote = JudgeClient(JudgeConfig(url=url))
        verdicts = [remote_submit(remote, str(n)) for n in range(4)]
        with remote:
            answers = [verdict.result(timeout=30) for verdict in verdicts]
    assert [answer.program_id for answer in answers] == list("0123")
    assert {answer.verdict for answer in answers} == {Verdict.ACCEPTED}
    assert asked[0] == 4
    assert len(asked) >= 3


def remote_submit(remote: JudgeClient, name: str) -> Any:
    """Submits before the connections are there, so that all go into one batch."""
    remote.layers = ("x",)
    return remote.submit(problem(), "print()", name)


def test_one_refused_program_does_not_take_others_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_CONNECTIONS", 1)

    def refuse_the_third(server: Answering, sent: list[dict[str, Any]]) -> None:
        if any(one["program_id"] == "2" for one in sent):
            server.reply(422, b'{"error": "programs: no"}')
        else:
            server.reply(200, lines(sent, range(len(sent))))

    with answering(*[refuse_the_third] * 9) as (url, _):
        remote = JudgeClient(JudgeConfig(url=url))
        verdicts = [remote_submit(remote, str(n)) for n in range(5)]
        with remote:
            answers = [verdict.result(timeout=30) for verdict in verdicts]
    assert [answer.verdict is Verdict.ACCEPTED for answer in answers] == [True, True, False, True, True]
    assert (answers[2].verdict, answers[2].detail) == (Verdict.JUDGE_ERROR, "the judge service refused it: programs: no")


def test_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_PAUSE", lambda state: 0.05)
    with answering() as (url, _):  # whose every batch fails
        with JudgeClient(JudgeConfig(url=url, patience_s=0.3)) as remote:
            answer = remote.submit(problem(), "print()", "a").result(timeout=30)
    assert (answer.verdict, answer.program_id, answer.problem_id) == (Verdict.JUDGE_ERROR, "a", "p")
    assert "stayed away for 0.3 s" in answer.detail


def test_a_service_without_room_is_waited_for_as_long_as_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_PAUSE", lambda state: 0.1)
    good = lambda server, sent: server.reply(200, lines(sent, range(len(sent))))  # noqa: E731
    with answering(*[PLANS["429"]] * 8, good) as (url, _):
        with JudgeClient(JudgeConfig(url=url, patience_s=0.3)) as remote:
            assert remote.submit(problem(), "print()", "a").result(timeout=30).verdict is Verdict.ACCEPTED


def test_a_service_started_anew_with_other_settings_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_PAUSE", lambda state: 0.1)
    first = Service("--workers", "1")
    with JudgeClient(JudgeConfig(url=first.url)) as remote:
        assert remote.submit(problem(), "print('done')").result(timeout=60).verdict is Verdict.ACCEPTED
        first.stop(signal.SIGKILL)
        with serving("--workers", "1", "--chain", "strict", port=first.port):
            answer = remote.submit(problem(), "print('done') ").result(timeout=60)
    assert (answer.verdict, "judges with other settings" in answer.detail) == (Verdict.JUDGE_ERROR, True)


def test_a_problem_that_cannot_be_sent_holds_up_no_other(service: Service) -> None:
    huge = Problem(problem_id="p", statement="s", form="function", entry_point="f", tests=(TestCase(input=[1], expected=10**5000),))
    with JudgeClient(JudgeConfig(url=service.url)) as remote:
        verdicts = [remote.submit(one, "print('done')") for one in (huge, problem(), huge, problem())]
        answers = [verdict.result(timeout=60) for verdict in verdicts]
    assert [answer.verdict.value for answer in answers] == ["judge_error", "accepted"] * 2
    assert "cannot be sent" in answers[0].detail


@pytest.mark.parametrize("body", [b"[]", b"{}", b'"ok"', b"<html>"])
def test_what_is_no_judge_service_is_told(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    with answering() as (url, _):
        monkeypatch.setattr(Answering, "do_GET", lambda server: server.reply(200, body))
        with pytest.raises(JudgeError, match=r"judge\.url: .* no judge service"), JudgeClient(JudgeConfig(url=url)):
            pass


def test_nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_START_PATIENCE_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with (
        pytest.raises(JudgeError, match=r"judge\.url: no judge service answers at .*microcoder judge serve"),
        JudgeClient(JudgeConfig(url=f"http://127.0.0.1:{port}")),
    ):
        pass


def test_leaving_with_an_error_does_not_wait(service: Service) -> None:
    started = time.monotonic()
    remote = JudgeClient(JudgeConfig(url=service.url)).__enter__()
    verdicts = [remote.submit(problem(), f"import time; time.sleep(3) # {n}") for n in range(300)]
    time.sleep(0.3)
    remote.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert time.monotonic() - started < 5
    assert all(verdict.done() for verdict in verdicts)


def test_leaving_a_service_that_is_gone_does_not_wait() -> None:
    with answering() as (url, asked):  # whose every batch fails
        remote = JudgeClient(JudgeConfig(url=url)).__enter__()
        verdicts = [remote.submit(problem(), f"print({n})") for n in range(300)]
        while len(asked) < 8:
            time.sleep(0.01)
        started = time.monotonic()
        remote.close(abandon=True)
    assert time.monotonic() - started < 2
    assert all(verdict.done() for verdict in verdicts)


def test_same_problem_is_the_same_object_whichever_request_brings_it() -> None:
    known = KnownProblems()
    body = json.dumps({"problems": [row(problem())], "programs": [{"problem": 0, "program": "x"}]}).encode()
    turned = json.dumps({"problems": [dict(reversed(row(problem()).items()))], "programs": [{"problem": 0, "program": "x"}]}).encode()
    other = json.dumps({"problems": [row(problem(expected="x"))], "programs": [{"problem": 0, "program": "x"}]}).encode()
    (first,), (second,), (third,) = (batch_items(one, known) for one in (body, turned, other))
    assert first.problem is second.problem
    assert first.problem is not third.problem


def test_known_problems_are_bounded() -> None:
    known = KnownProblems(max_bytes=2000)
    first = known.get(row(problem("first")), "problem")
    for number in range(100):
        known.get(row(problem(str(number))), "problem")
    assert known.get(row(problem("first")), "problem") is not first
    assert known._bytes <= 2000
    with pytest.raises(InputError, match="problem: "):
        known.get({"problem_id": "x"}, "problem")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--port", "70000"], "port: Input should be less than or equal to 65535"),
        (["--host", "256.1.1.1"], "host, port: cannot listen on 256.1.1.1"),
        (["judge.url=http://x"], "judge.url: a service runs programs itself"),
        (["queue=3"], "queue: unknown key"),
    ],
)
def test_wrong_settings_are_refused(options: list[str], message: str) -> None:
    command = [*MICROCODER, "judge", "serve", *options]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 2
    assert message in ran.stderr


def test_port_in_use_is_told(service: Service) -> None:
    command = [*MICROCODER, "judge", "serve", "--port", str(service.port)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (ran.returncode, "cannot listen on 127.0.0.1" in ran.stderr) == (2, True)


def test_judge_run_through_a_service_writes_the_same_file(service: Service, tmp_path: Path) -> None:
    (tmp_path / "problems.jsonl").write_text(json.dumps(row(problem())) + "\n")
    programs = [{"problem_id": "p", "program_id": str(n), "code": f"print({'done' if n % 3 else 'no'!r})"} for n in range(20)]
    (tmp_path / "programs.jsonl").write_text("".join(json.dumps(one) + "\n" for one in programs))
    command = [*MICROCODER, "judge", "run"]
    command += ["--problems", str(tmp_path / "problems.jsonl"), "--programs", str(tmp_path / "programs.jsonl")]
    for name, options in (("here", []), ("there", ["--url", service.url])):
        ran = subprocess.run([*command, "--out", str(tmp_path / f"{name}.jsonl"), *options], capture_output=True, text=True, timeout=60)
        assert ran.returncode == 0, ran.stderr
    here, there = ([strip(line) for line in (tmp_path / f"{name}.jsonl").read_text().splitlines()] for name in ("here", "there"))
    assert here == there
    assert len(here) == 20


def test_curate_through_a_service_writes_the_same_bytes(service: Service, drills: Path, tmp_path: Path) -> None:
    manifests = [
        curate(CurateConfig(judge=JudgeConfig(url=url)), problems=drills, out=tmp_path / name, tracker=NullTracker())
        for name, url in (("here", None), ("there", service.url))
    ]
    assert manifests[0].problems > 0
    assert manifests[0] == manifests[1]
    assert content_sha256(tmp_path / "here") == content_sha256(tmp_path / "there")


def strip(line: str) -> dict[str, Any]:
    return {key: value for key, value in json.loads(line).items() if key not in ("time_s", "memory_mib")}
