"""Data set folders: round trips, equal bytes, and what is refused."""

import json
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from microcoder_core.errors import InputError
from microcoder_core.records import Checker, Dropped, Problem, TestCase
from microcoder_core.storage import datasets
from microcoder_core.storage.datasets import (
    DatasetWriter,
    LineageStep,
    content_sha256,
    count_problems,
    export_jsonl,
    lineage,
    read_manifest,
    read_problems,
)

STEP = LineageStep(stage="import", config_sha256="c", inputs={"source": "s"})


def write(target, problems, dropped=(), step=STEP, earlier=()):
    with DatasetWriter(target, step, earlier) as writer:
        for record in (*problems, *dropped):
            writer.take(record)
    return writer.manifest


@pytest.fixture
def full() -> Problem:
    """A problem with every field set, and values that are hard to carry."""
    return Problem(
        problem_id="x/1",
        source="s",
        url="u",
        title="Gr\u00fc\u00dfe \U0001f600",
        date="2023-05",
        statement="line 1\r\n\0line 2\u2028",
        form="function",
        entry_point="f",
        starter_code="def f():\n",
        tests=(
            TestCase(input=[{"$tuple": [1, 2.0, None]}, {"k": {"$float": "nan"}}, 2**70, "\ud800"], expected={"$map": [[1, True]]}),
            TestCase(input=[], expected=None),
        ),
        checker=Checker(kind="float", abs=0.0, rel=1e-9),
        time_limit_s=2.5,
        memory_limit_mib=256,
        tags=("a", "b"),
        difficulty="hard",
        difficulty_scores={"loc": 3.0},
        human_difficulty="Hard",
        reference_solutions=("def f():\n\treturn 1\n",),
        wrong_solutions=("def f(): return 2", ""),
        licence="MIT",
    )


def test_problems_come_back_in_order(tmp_path, full, double, total):
    write(tmp_path / "d", [full, double, total])
    assert list(read_problems(tmp_path / "d")) == [full, double, total]
    assert count_problems(tmp_path / "d") == 3


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".jsonl.zst"])
def test_jsonl_holds_the_same_problems_with_the_same_hash(tmp_path, full, double, total, suffix):
    manifest = write(tmp_path / "d", [full, double, total])
    file = tmp_path / f"d{suffix}"
    assert export_jsonl(read_problems(tmp_path / "d"), file) == 3
    assert list(read_problems(file)) == [full, double, total]
    assert content_sha256(file) == content_sha256(tmp_path / "d") == manifest.content_sha256
    assert count_problems(file) == 3
    assert lineage(file) == ()


def test_same_problems_give_the_same_bytes(tmp_path, full, double):
    for name in ("a", "b"):
        write(tmp_path / name, [full, double], [Dropped(record_id="z", reason="no_tests")])
    files = sorted(os.listdir(tmp_path / "a"))
    assert files == [".microcoder.json", "dropped.jsonl", "manifest.json", "problems-00000.parquet"]
    for name in files:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_hash_tells_problems_and_order_apart(tmp_path, double, total):
    orders = ([double, total], [total, double], [double])
    assert len({write(tmp_path / str(number), problems).content_sha256 for number, problems in enumerate(orders)}) == 3


def test_shards_change_neither_problems_nor_hash(tmp_path, monkeypatch, double):
    problems = [double.model_copy(update={"problem_id": str(number)}) for number in range(7)]
    whole = write(tmp_path / "whole", problems)
    monkeypatch.setattr(datasets, "SHARD_ROWS", 3)
    split = write(tmp_path / "split", problems)
    assert (len(whole.shards), len(split.shards)) == (1, 3)
    assert whole.content_sha256 == split.content_sha256
    assert list(read_problems(tmp_path / "split")) == problems


def test_dropped_records_are_counted_and_kept(tmp_path, double):
    dropped = [Dropped(record_id="1", reason="no_tests"), Dropped(record_id="\ud800", reason="no_tests", detail="d")]
    manifest = write(tmp_path / "d", [double], dropped)
    assert manifest.dropped == {"no_tests": 2}
    assert manifest.records_in == 3
    rows = [json.loads(line) for line in (tmp_path / "d" / "dropped.jsonl").read_text().splitlines()]
    assert [Dropped(**row) for row in rows] == dropped


def test_lineage_grows(tmp_path, double):
    write(tmp_path / "a", [double])
    write(tmp_path / "b", [double], step=LineageStep(stage="curate"), earlier=lineage(tmp_path / "a"))
    assert [step.stage for step in lineage(tmp_path / "b")] == ["import", "curate"]


def test_columns_can_be_filtered_without_our_code(tmp_path, full, double):
    write(tmp_path / "d", [full, double])
    table = pq.read_table(tmp_path / "d" / "problems-00000.parquet")
    assert table["difficulty"].to_pylist() == ["hard", None]
    assert table.column_names == list(Problem.model_fields)


def test_failed_writer_leaves_nothing(tmp_path, double):
    with pytest.raises(RuntimeError), DatasetWriter(tmp_path / "d", STEP) as writer:  # noqa: PT012
        writer.add(double)
        raise RuntimeError
    assert os.listdir(tmp_path) == []


def test_empty_data_set_is_refused_when_read(tmp_path):
    write(tmp_path / "d", [])
    with pytest.raises(InputError, match="holds no problem"):
        list(read_problems(tmp_path / "d"))
    (tmp_path / "e.jsonl").write_text("\n")
    with pytest.raises(InputError, match="holds no problem"):
        list(read_problems(tmp_path / "e.jsonl"))


def damage_nothing(folder):
    (folder / "manifest.json").unlink()


def damage_manifest(folder):
    (folder / "manifest.json").write_text("{")


def damage_version(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"schema_version": 99}))


def damage_count(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"problems": 5}))


def damage_missing_shard(folder):
    (folder / "problems-00000.parquet").unlink()


def damage_shard(folder):
    (folder / "problems-00000.parquet").write_bytes(b"PAR1 nothing")


def damage_shard_name(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"shards": ["../problems-00000.parquet"]}))


def damage_json_column(folder):
    table = pq.read_table(folder / "problems-00000.parquet")
    column = table.schema.get_field_index("tests")
    pq.write_table(table.set_column(column, "tests", pa.array(["[{"])), folder / "problems-00000.parquet")


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (damage_shard_name, "shards.0: "),
        (damage_json_column, "cannot be read"),
        (damage_nothing, "no manifest.json"),
        (damage_manifest, "cannot be read"),
        (damage_version, "schema_version must be 1, got 99"),
        (damage_count, "says 5 problems, the shards hold 1"),
        (damage_missing_shard, "cannot be read"),
        (damage_shard, "cannot be read"),
    ],
)
def test_damaged_data_set_is_an_input_error(tmp_path, double, damage, complaint):
    write(tmp_path / "d", [double])
    damage(tmp_path / "d")
    with pytest.raises(InputError, match=complaint) as caught:
        list(read_problems(tmp_path / "d"))
    assert "\n" not in str(caught.value)


def test_what_is_no_data_set_is_refused(tmp_path):
    with pytest.raises(InputError, match="no such data set"):
        read_manifest(tmp_path / "none")
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(InputError, match="must be a data set folder or a file named"):
        list(read_problems(tmp_path / "notes.txt"))


def test_row_that_is_no_problem_is_named(tmp_path, double):
    file = tmp_path / "d.jsonl"
    file.write_text('{"problem_id": "a", "statement": "s", "form": "stdin", "tests": []}\n')
    with pytest.raises(InputError, match=r"d\.jsonl:1: tests must hold at least one test"):
        list(read_problems(file))


def test_folder_named_like_a_file_is_a_data_set(tmp_path, double):
    write(tmp_path / "d.jsonl", [double])
    assert list(read_problems(tmp_path / "d.jsonl")) == [double]
    assert content_sha256(tmp_path / "d.jsonl") == read_manifest(tmp_path / "d.jsonl").content_sha256
    assert len(lineage(tmp_path / "d.jsonl")) == 1


def test_export_needs_a_name_that_says_jsonl(tmp_path, double):
    with pytest.raises(InputError, match=r"must be named \.jsonl"):
        export_jsonl([double], tmp_path / "d.json")
