"""`microcoder judge run` and `microcoder doctor` as a person or a script meets them."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from microcoder_core.cli.main import main
from microcoder_core.records import Checker, Judgement, Problem, TestCase
from microcoder_core.storage.datasets import export_jsonl


@pytest.fixture
def problems(tmp_path: Path, double: Problem, total: Problem) -> Path:
    export_jsonl([double, total], tmp_path / "problems.jsonl")
    return tmp_path / "problems.jsonl"


def run(problems: Path, lines: list[str], *options: str) -> tuple[int, Path]:
    programs, out = problems.parent / "programs.jsonl", problems.parent / "verdicts.jsonl"
    programs.write_text("".join(line + "\n" for line in lines))
    arguments = ["judge", "run", "--problems", str(problems), "--programs", str(programs), "--out", str(out), "--workers", "1", *options]
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert isinstance(stop.value.code, int)
    return stop.value.code, out


LINES = [
    json.dumps({"problem_id": "total", "program_id": "a", "code": "input()\nprint(sum(map(int, input().split())))"}),
    json.dumps({"problem_id": "double", "completion": "So:\n```python\ndef double(x):\n    return x\n```"}),
    json.dumps({"problem_id": "double", "completion": "So:\n```python\ndef double(x", "finish_reason": "length"}),
]


def test_verdicts_stand_in_the_order_of_the_programs(problems: Path) -> None:
    code, out = run(problems, LINES)
    found = [Judgement.model_validate_json(line) for line in out.read_text().splitlines()]
    assert code == 0
    assert [(each.problem_id, each.program_id, each.verdict.value) for each in found] == [
        ("total", "a", "accepted"),
        ("double", None, "wrong_answer"),
        ("double", None, "no_program"),
    ]


def test_summary_counts_verdicts(problems: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(problems, LINES)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [["accepted", "1"], ["wrong_answer", "1"], ["no_program", "1"], ["programs", "3"]]


def test_summary_as_json(problems: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(problems, LINES, "--json", "--chain", "strict", "--sandbox", "none")
    summary = json.loads(capsys.readouterr().out)
    assert summary["verdicts"] == {"accepted": 1, "wrong_answer": 1, "no_program": 1}
    assert summary["sandbox"][0] == "none"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (['{"problem_id": "nope", "code": ""}'], "programs.jsonl:1: problem_id: must be a problem of"),
        ([LINES[0], "{"], "programs.jsonl:2: not JSON"),
        ([LINES[0], '{"problem_id": "total"}'], "programs.jsonl:2: give either code or completion"),
        (['{"problem_id": "total", "code": "", "completion": ""}'], "give either code or completion"),
        (['{"problem_id": "total", "code": "", "lang": "c"}'], "lang: unknown key"),
        ([], "holds no program"),
    ],
)
def test_bad_programs_file_is_refused_in_one_line(
    problems: Path, capsys: pytest.CaptureFixture[str], lines: list[str], message: str
) -> None:
    code, out = run(problems, lines)
    error = capsys.readouterr().err
    assert code == 2
    assert message in error
    assert error.count("\n") == 1
    assert not out.exists()


def test_bad_worker_count_is_refused(problems: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(problems, LINES, "--workers", "0")[0] == 2
    assert "workers" in capsys.readouterr().err


def test_a_problem_that_is_there_twice_is_refused(problems: Path, capsys: pytest.CaptureFixture[str]) -> None:
    problems.write_text(problems.read_text() * 2)
    code, out = run(problems, LINES)
    assert code == 2
    assert "problem_id: must differ from problem to problem, got 'double' twice" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize("name", ["programs.jsonl", "problems.jsonl"])
def test_verdicts_never_replace_the_input(problems: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = problems.read_text() if name == "problems.jsonl" else "".join(line + "\n" for line in LINES)
    code, _ = run(problems, LINES, "--out", str(problems.parent / name))
    assert code == 2
    assert "out: must be another file than the input" in capsys.readouterr().err
    assert (problems.parent / name).read_text() == before


def test_a_judge_that_grades_nothing_fails(problems: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checker = Checker(kind="program", code="def check(input, expected, output):\n    raise OSError('ill')\n")
    broken = Problem(problem_id="p", statement="s", form="stdin", tests=(TestCase(input="", expected=""),), checker=checker)
    export_jsonl([broken], problems)
    code, out = run(problems, [json.dumps({"problem_id": "p", "code": "pass"})])
    assert code == 1
    assert "failed: no program could be graded (test 1" in capsys.readouterr().err
    assert json.loads(out.read_text())["verdict"] == "judge_error"


def test_sigterm_stops_at_once_and_leaves_nothing(problems: Path) -> None:
    programs, out = problems.parent / "programs.jsonl", problems.parent / "verdicts.jsonl"
    programs.write_text(json.dumps({"problem_id": "total", "code": "import time; time.sleep(60)"}) + "\n")
    command = [sys.executable, "-c", "from microcoder_core.cli.main import main; main()", "judge", "run", "--time-limit", "60"]
    command += ["--problems", str(problems), "--programs", str(programs), "--out", str(out)]
    scratch = problems.parent / "scratch"
    scratch.mkdir()
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | {"TMPDIR": str(scratch)})
    while not list(scratch.iterdir()):  # a worker has started
        time.sleep(0.05)
    time.sleep(0.5)
    process.terminate()
    _, error = process.communicate(timeout=20)
    assert (process.returncode, error.strip()) == (143, "cancelled")
    assert not list(scratch.iterdir())
    assert sorted(path.name for path in problems.parent.iterdir()) == ["problems.jsonl", "programs.jsonl", "scratch"]


def test_doctor_tells_the_layers(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["doctor", "--json"])
    findings = json.loads(capsys.readouterr().out)
    assert findings["sandbox"]["meets_minimum"] is True
    assert findings["packages"]["pydantic"]


def test_doctor_hides_passwords_and_says_what_cannot_be_reached(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://user:secret@127.0.0.1:9")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://user:secret@127.0.0.1:9")
    with pytest.raises(SystemExit):
        main(["doctor"])
    text = capsys.readouterr().out
    assert "MLflow: http://127.0.0.1:9 (not reachable" in text
    assert "S3: http://127.0.0.1:9 (not reachable" in text
    assert "secret" not in text


def test_judge_needs_no_heavy_package() -> None:
    heavy = ("torch", "transformers", "mlflow", "kfp", "numpy", "pyarrow", "kubernetes")
    program = f"import sys, microcoder_core.judge.judge\nprint([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"
