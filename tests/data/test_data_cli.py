"""`microcoder data`: what it prints, and one clear line with exit code 2 for bad input."""

import gzip
import json
import subprocess
import sys

import pytest

from microcoder_core.cli.main import main
from microcoder_core.storage.datasets import DatasetWriter, LineageStep, export_jsonl, read_manifest, read_problems

GOOD = {"problem_id": "a", "statement": "Echo.", "form": "stdin", "tests": [{"input": "1", "expected": "1"}]}


@pytest.fixture(autouse=True)
def no_tracking(monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.fixture
def microcoder(capsys):
    """Runs a command line; answers with exit code, stdout and stderr."""

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return ended.value.code, captured.out, captured.err

    return run


@pytest.fixture
def dataset(tmp_path, double, total):
    with DatasetWriter(tmp_path / "dataset", LineageStep(stage="import")) as writer:
        writer.add(double)
        writer.add(total)
    return tmp_path / "dataset"


def write(file, *lines):
    file.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return file


def test_import_prints_the_counts(microcoder, tmp_path):
    row = {"task_id": "H/1", "prompt": 'def f():\n    """Return 1."""\n', "entry_point": "f", "canonical_solution": "    return 1\n"}
    test = "def check(candidate):\n    assert candidate() == 1\n"
    source = write(tmp_path / "a.jsonl", row | {"test": test}, row | {"test": test}, row | {"task_id": "H/2", "test": "check"}, {})
    code, out, err = microcoder("data", "import", "humaneval", source, "--out", tmp_path / "out")
    assert (code, err) == (0, "")
    assert out.split() == [
        *["problems", "in", "4", "problems", "kept", "1", "problems", "dropped", "3"],
        *["1", "duplicate_id", "1", "missing_field", "1", "no_check_function"],
        *f"data set {tmp_path}/out".split(),
    ]
    reasons = [json.loads(line)["reason"] for line in (tmp_path / "out" / "dropped.jsonl").read_text().splitlines()]
    assert reasons == ["duplicate_id", "no_check_function", "missing_field"]


@pytest.mark.parametrize(
    ("form", "path", "count"),
    [
        ("humaneval", "humaneval/HumanEval.jsonl.gz", 164),
        ("mbpp", "mbpp/mbpp_release_v1.jsonl.gz", 974),
        ("jsonl", "codejam/codejam.jsonl.gz", 172),
    ],
)
def test_real_files_are_imported_whole(microcoder, shared, tmp_path, form, path, count):
    code, out, _ = microcoder("data", "import", form, shared / "data" / path, "--out", tmp_path / "out", "--json")
    assert code == 0
    assert json.loads(out) == {"in": count, "kept": count, "dropped": {}, "out": str(tmp_path / "out")}
    assert sum(1 for _ in read_problems(tmp_path / "out")) == count


def test_import_of_a_data_set_keeps_its_lineage(microcoder, tmp_path, dataset):
    microcoder("data", "import", "jsonl", dataset, "--out", tmp_path / "out")
    before, after = read_manifest(dataset), read_manifest(tmp_path / "out")
    assert after.content_sha256 == before.content_sha256
    assert [step.inputs for step in after.lineage] == [{}, {"source": before.content_sha256}]


def test_same_source_gives_the_same_bytes(microcoder, tmp_path):
    source = write(tmp_path / "a.jsonl", GOOD)
    for name in ("one", "two"):
        microcoder("data", "import", "jsonl", source, "--out", tmp_path / name)
    assert (tmp_path / "one" / "manifest.json").read_bytes() == (tmp_path / "two" / "manifest.json").read_bytes()


def test_show_lists_problems(microcoder, dataset):
    code, out, _ = microcoder("data", "show", dataset, "--limit", 1)
    assert code == 0
    assert out.split()[:7] == ["problem", "form", "tests", "checker", "level", "refs", "statement"]
    assert "Return twice x." in out
    assert "total" not in out


def test_show_one_problem(microcoder, dataset):
    code, out, _ = microcoder("data", "show", dataset, "--problem", "double")
    assert code == 0
    for part in (
        "entry_point: double",
        "--- statement\nReturn twice x.",
        "--- wrong solution 0\ndef double(x):",
        "input:    [2]\nexpected: 4",
    ):
        assert part in out


def test_show_as_json_is_rows_of_problems(microcoder, dataset, tmp_path):
    _, out, _ = microcoder("data", "show", dataset, "--json")
    (tmp_path / "b.jsonl").write_text(out)
    assert list(read_problems(tmp_path / "b.jsonl")) == list(read_problems(dataset))


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".jsonl.zst"])
def test_export_and_import_give_the_same_data_set(microcoder, dataset, tmp_path, suffix):
    file = tmp_path / f"x{suffix}"
    assert microcoder("data", "export", dataset, "--out", file)[:2] == (0, f"2 problems written to {file}\n")
    microcoder("data", "import", "jsonl", file, "--out", tmp_path / "again")
    assert read_manifest(tmp_path / "again").content_sha256 == read_manifest(dataset).content_sha256


SOURCES = {
    "good.jsonl": [GOOD],
    "broken.jsonl": [GOOD, '{"problem_id": "b", '],
    "unknown_key.jsonl": [GOOD | {"statment": "x"}],
    "wrong_type.jsonl": [GOOD | {"time_limit_s": "soon"}],
    "no_tests.jsonl": [GOOD | {"tests": []}],
    "empty.jsonl": [],
    "list.jsonl": ["[1]"],
    "data.csv": ["a,b"],
}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("import jsonl missing.jsonl --out out", "missing.jsonl: no such file"),
        ("import jsonl missing --out out", "missing: no such data set"),
        ("import humaneval missing.jsonl --out out", "missing.jsonl: no such file"),
        ("import jsonl broken.jsonl --out out", "broken.jsonl:2: not JSON"),
        ("import mbpp broken.jsonl --out out", "broken.jsonl:2: not JSON"),
        ("import jsonl unknown_key.jsonl --out out", "unknown_key.jsonl:1: statment: unknown key"),
        ("import jsonl wrong_type.jsonl --out out", "wrong_type.jsonl:1: time_limit_s: "),
        ("import jsonl no_tests.jsonl --out out", "no_tests.jsonl:1: tests must hold at least one test"),
        ("import jsonl empty.jsonl --out out", "empty.jsonl: holds no problem"),
        ("import humaneval empty.jsonl --out out", "empty.jsonl: holds no record"),
        ("import humaneval good.jsonl --out out", "no record is a usable problem in format humaneval"),
        ("import jsonl list.jsonl --out out", "list.jsonl:1: must be a JSON object"),
        ("import jsonl data.csv --out out", "must be a data set folder or a file named"),
        ("import jsonl folder --out out", "has no manifest.json"),
        ("import humaneval folder --out out", "is a folder; give the file of it that is in format humaneval"),
        ("import apps good.jsonl --out out", "format: Input should be 'drills', 'humaneval', 'jsonl' or 'mbpp', got 'apps'"),
        ("import drills test --out out", "must be train or held_out"),
        ("import jsonl good.jsonl --out good.jsonl", "is a file"),
        ("import jsonl good.jsonl --out good.jsonl/out", "cannot be written"),
        ("import jsonl good.jsonl --out /proc/none/out", "cannot be written"),
        ("import jsonl good.jsonl --out folder", "is not empty and not an output of microcoder"),
        ("curate missing --out out", "missing: no such data set"),
        ("curate good.jsonl --out out --exclude missing", "missing: no such data set"),
        ("curate broken.jsonl --out out", "broken.jsonl:2: not JSON"),
        ("curate empty.jsonl --out out", "empty.jsonl: holds no problem"),
        ("curate good.jsonl --out out --config missing.yaml", "missing.yaml: cannot be read"),
        ("curate good.jsonl --out out max_tests=3", "max_tests: unknown key"),
        ("curate good.jsonl --out out constraints.max_tests=many", "constraints.max_tests: "),
        ("curate good.jsonl --out out constraints.max_tests", "must be key=value"),
        ("curate good.jsonl --out /proc/none/out", "cannot be written"),
        ("show missing", "missing: no such data set"),
        ("show good.jsonl --problem b", "holds no problem 'b'"),
        ("show empty.jsonl", "holds no problem"),
        ("export missing --out x.jsonl", "missing: no such data set"),
        ("export good.jsonl --out x.csv", "x.csv: must be named"),
        ("export good.jsonl --out folder", "folder: must be named"),
        ("export broken.jsonl --out x.jsonl", "broken.jsonl:2: not JSON"),
        ("export good.jsonl --out data.csv/x.jsonl", "cannot be written"),
    ],
)
def test_bad_input_is_one_clear_line(microcoder, tmp_path, monkeypatch, arguments, complaint):
    monkeypatch.chdir(tmp_path)
    for name, rows in SOURCES.items():
        write(tmp_path / name, *rows)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "notes").write_text("mine")
    before = {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}
    code, out, err = microcoder("data", *arguments.split())
    assert (code, out) == (2, "")
    assert complaint in err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert before == {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}


@pytest.mark.parametrize("damage", ["cut", "no gzip"])
def test_damaged_archive_is_one_clear_line(microcoder, tmp_path, damage):
    data = gzip.compress(json.dumps(GOOD).encode() * 100)
    (tmp_path / "a.jsonl.gz").write_bytes(data[:-9] if damage == "cut" else b"text")
    code, _, err = microcoder("data", "import", "jsonl", tmp_path / "a.jsonl.gz", "--out", tmp_path / "out")
    assert (code, err.count("\n")) == (2, 1)
    assert not (tmp_path / "out").exists()


def test_earlier_output_stands_when_the_next_import_fails(microcoder, dataset, tmp_path):
    before = read_manifest(dataset)
    source = write(tmp_path / "a.jsonl", GOOD, "{")
    assert microcoder("data", "import", "jsonl", source, "--out", dataset)[0] == 2
    assert read_manifest(dataset) == before


def test_import_needs_no_heavy_package(dataset, tmp_path):
    export_jsonl(read_problems(dataset), tmp_path / "a.jsonl")
    code = (
        "import sys\nfrom microcoder_core.cli.main import main\n"
        f"try: main(['data', 'import', 'jsonl', {str(tmp_path / 'a.jsonl')!r}, '--out', {str(tmp_path / 'out')!r}])\n"
        "except SystemExit as end: assert end.code == 0\n"
        "print(sorted({'torch', 'transformers', 'mlflow', 'kfp'} & set(sys.modules)))"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.splitlines()[-1] == "[]"
