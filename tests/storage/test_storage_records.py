"""Problem rows: what is taken, what is refused with which line; tagged values; stage records."""

import json
import math
import re
from collections import Counter, OrderedDict, defaultdict, namedtuple
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from microcoder_core.errors import InputError
from microcoder_core.records import Outcome, Problem, Verdict, parse_record
from microcoder_core.storage.stage_output import StageRecord, read_stage_record, read_stage_result, write_stage_record
from microcoder_core.values import check_tagged, decode, encode

STDIN = {"problem_id": "a", "statement": "s", "form": "stdin", "tests": [{"input": "1", "expected": "1"}]}
FUNCTION = {"problem_id": "a", "statement": "s", "form": "function", "entry_point": "f", "tests": [{"input": [1], "expected": 1}]}


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"problem_id": None}, "problem_id: .*got None"),
        ({"problem_id": ""}, "problem_id: "),
        ({"problem_id": 5}, "problem_id: .*got 5"),
        ({"statement": ""}, "statement: "),
        ({"form": "socket"}, "form: .*got 'socket'"),
        ({"tests": []}, "tests must hold at least one test"),
        ({"tests": "abc"}, "tests: "),
        ({"tests": [{"input": "1"}]}, r"tests\.0\.expected: Field required"),
        ({"tests": [{"input": 1, "expected": "1"}]}, r"tests\.0: input and expected must be text"),
        ({"tests": [{"input": "1", "expected": "1", "output": "1"}]}, r"tests\.0\.output: unknown key"),
        ({"difficluty": "easy"}, "difficluty: unknown key"),
        ({"difficulty": "Easy"}, "difficulty: "),
        ({"date": "May 2023"}, "date: must be an ISO date"),
        ({"date": "2023-13"}, "date: must be an ISO date"),
        ({"date": "2023-02-29"}, "date: must be an ISO date"),
        *(({"date": date}, "date: must be an ISO date") for date in ("20230201", "2023-1", "2023-", "2023-05-1", "2023-05-01x", "0000")),
        ({"time_limit_s": 0}, "time_limit_s: "),
        ({"time_limit_s": "soon"}, "time_limit_s: .*got 'soon'"),
        ({"time_limit_s": math.inf}, "time_limit_s: "),
        ({"difficulty_scores": {"loc": math.nan}}, r"difficulty_scores\.loc: "),
        ({"checker": {"kind": "fuzzy"}}, r"checker\.kind: "),
        ({"checker": {"kind": "program"}}, "checker: code is for kinds"),
        ({"checker": {"kind": "program", "code": "def check(:"}}, r"checker: code must be Python: invalid syntax \(line 1\)"),
        ({"checker": {"kind": "program", "code": "x = 1"}}, "checker: code must define a function named check"),
        ({"checker": {"kind": "tokens", "abs": 0.1}}, "checker: abs and rel"),
        ({"time_limit_s": 1e30}, "time_limit_s: .*3600"),
        ({"memory_limit_mib": 10**20}, "memory_limit_mib: "),
        ({"checker": {"kind": "float", "abs": -1}}, r"checker\.abs: "),
        ({"checker": {"kind": "unordered"}}, "does not fit form stdin"),
        ({"entry_point": "f"}, "entry_point is for form function only"),
        ({"statement": "\ud800"}, "statement: .*unicode"),
        ({"tests": [{"input": "\ud800", "expected": "1"}]}, "must be UTF-8"),
        ({"reference_solutions": ["\udfff"]}, "must be UTF-8"),
    ],
)
def test_bad_stdin_row_is_one_clear_line(change, complaint):
    with pytest.raises(InputError, match=complaint) as caught:
        parse_record(Problem, STDIN | change, "file:7")
    assert str(caught.value).startswith("file:7: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"entry_point": None}, "entry_point is required"),
        ({"entry_point": "a.b"}, "entry_point is required"),
        ({"tests": [{"input": "1", "expected": 1}]}, "must be the list of positional arguments"),
        ({"tests": [{"input": [{"$tupel": []}], "expected": 1}]}, r"unknown tag \$tupel"),
        ({"tests": [{"input": [{"$tuple": "ab"}], "expected": 1}]}, r"tag \$tuple must hold a list"),
        ({"tests": [{"input": [{"$set": [[1]]}], "expected": 1}]}, r"tag \$set has content that does not fit"),
        ({"tests": [{"input": [math.nan], "expected": 1}]}, "nan is not JSON"),
        ({"tests": [{"input": nested(400), "expected": 1}]}, "nested deeper than 200"),
        ({"checker": {"kind": "lines"}}, "does not fit form function"),
    ],
)
def test_bad_function_row_is_one_clear_line(change, complaint):
    with pytest.raises(InputError, match=complaint) as caught:
        parse_record(Problem, FUNCTION | change, "file:7")
    assert "\n" not in str(caught.value)


def test_asserts_stand_in_for_tests():
    checker = {"kind": "asserts", "code": "def check(candidate): assert candidate(1)"}
    assert parse_record(Problem, FUNCTION | {"tests": [], "checker": checker}, "x").tests == ()


def test_lone_surrogate_may_be_an_argument():
    row = FUNCTION | {"tests": [{"input": ["\ud800"], "expected": "\ud800"}]}
    assert parse_record(Problem, row, "x").tests[0].input == ["\ud800"]


def test_records_are_frozen(double):
    with pytest.raises(ValueError, match="frozen"):
        double.statement = "other"


def test_only_accepted_is_correct_and_only_judge_errors_are_ungraded():
    outcomes = {verdict: verdict.outcome for verdict in Verdict}
    assert [v for v, o in outcomes.items() if o is Outcome.CORRECT] == [Verdict.ACCEPTED]
    assert [v for v, o in outcomes.items() if o is Outcome.UNGRADED] == [Verdict.JUDGE_ERROR]
    assert [v for v, o in outcomes.items() if o is Outcome.INCOMPLETE] == [Verdict.NO_PROGRAM]


keys = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary())
values = st.recursive(
    st.one_of(keys, st.complex_numbers(allow_nan=False)),
    lambda inner: st.one_of(
        st.lists(inner), st.lists(inner).map(tuple), st.dictionaries(keys, inner), st.frozensets(keys), st.sets(st.integers())
    ),
    max_leaves=10,
)


def typed(value):
    """`value` with its types, so that 1, 1.0 and True differ and the order of a set does not."""
    if isinstance(value, dict):
        return "dict", sorted((repr(typed(key)), repr(typed(item))) for key, item in value.items())
    if isinstance(value, set | frozenset):
        return type(value), sorted(repr(typed(item)) for item in value)
    return (type(value), [typed(item) for item in value]) if isinstance(value, list | tuple) else (type(value), repr(value))


@given(values)
def test_values_keep_their_types(value):
    tagged = encode(value)
    check_tagged(tagged)
    assert typed(decode(tagged)) == typed(value)


class Pose(dict):
    """Holds nothing, and says otherwise."""

    def items(self):
        return [("a", 1)]

    def __iter__(self):
        return iter("a")

    def __eq__(self, other):
        return True

    __hash__ = None


class Five(int):
    def __int__(self):
        return 5

    __index__ = __repr__ = __int__


def test_subclasses_are_carried_as_what_they_hold():
    point = namedtuple("point", "x y")(1, 2)
    assert encode(Counter("aab")) == {"a": 2, "b": 1}
    assert encode(defaultdict(list, {1: [2]})) == {"$map": [[1, [2]]]}
    assert encode([OrderedDict(a=1), point]) == [{"a": 1}, {"$tuple": [1, 2]}]
    assert json.dumps(encode([Pose(), Five(4), Verdict.ACCEPTED])) == '[{}, 4, "accepted"]'
    with pytest.raises(TypeError, match="cannot be written as JSON: object"):
        encode(object())


def test_stage_record_comes_back(tmp_path):
    record = StageRecord(stage="probe", config={"a": 1}, result={"verdict": "accepted"})
    write_stage_record(tmp_path, record)
    assert read_stage_record(tmp_path, "probe") == record
    with pytest.raises(InputError, match="must be an output of stage train, got one of stage probe"):
        read_stage_record(tmp_path, "train")
    with pytest.raises(InputError, match="result: "):
        read_stage_result(tmp_path, "probe", Problem)


@pytest.mark.parametrize("content", [None, "{", "[]", '{"stage": "probe"}'])
def test_unfinished_stage_output_is_refused(tmp_path, content):
    if content is not None:
        (tmp_path / "stage.json").write_text(content)
    with pytest.raises(InputError):
        read_stage_record(tmp_path, "probe")
    with pytest.raises(InputError, match="no such folder"):
        read_stage_record(tmp_path / "none", "probe")


def test_rows_that_the_documents_show_are_problems():
    text = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    rows = [json.loads(line) for line in block.splitlines()]
    assert [parse_record(Problem, row, "docs").form for row in rows] == ["stdin", "function"]
