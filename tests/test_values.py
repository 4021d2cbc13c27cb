"""The codec: every value comes back as it went."""

import json
import math
from collections import Counter, OrderedDict, namedtuple
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from microcoder_core.values import check_tagged, decode, encode

KEYS = (
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.binary(max_size=5) | st.tuples(st.integers(), st.text(max_size=3))
)
LEAVES = (
    KEYS | st.floats(allow_nan=False) | st.complex_numbers(allow_nan=False) | st.frozensets(KEYS, max_size=3) | st.sets(KEYS, max_size=3)
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(KEYS, inner, max_size=4)
        | st.dictionaries(st.sampled_from(["$set", "$tuple", "$x", "a"]), inner, max_size=2)
        | st.tuples(inner, inner)
    ),
)


def same(a: Any, b: Any) -> bool:
    """Equality that tells 1 from True and from 1.0, at every depth."""
    if type(a) is not type(b):
        return False
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return len(a) == len(b) and all(same(x, y) and same(a[x], b[y]) for x, y in zip(a, b, strict=True))
    if isinstance(a, set | frozenset):
        return {(type(x), x) for x in a} == {(type(x), x) for x in b}
    return bool(a == b)


@given(VALUES)
def test_value_comes_back_through_json(value: Any) -> None:
    text = json.dumps(encode(value), allow_nan=False)
    assert same(decode(json.loads(text)), value)


@given(VALUES)
def test_what_is_encoded_passes_the_check(value: Any) -> None:
    check_tagged(encode(value))


def test_nan_comes_back() -> None:
    assert math.isnan(decode(encode(math.nan)))


def test_set_has_one_spelling() -> None:
    assert encode({"b", "a", "c"}) == encode({"c", "b", "a"}) == {"$set": ["a", "b", "c"]}


@pytest.mark.parametrize(
    ("value", "plain"),
    [(Counter("aab"), {"a": 2, "b": 1}), (OrderedDict(x=1), {"x": 1}), (namedtuple("P", "x")(1), {"$tuple": [1]})],
)
def test_subclass_is_read_as_its_base(value: Any, plain: Any) -> None:
    assert encode(value) == plain


@pytest.mark.parametrize("value", [object(), len, int, range(3), map(int, []), ..., bytearray(b"a")])
def test_value_outside_the_table_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="cannot be written"):
        encode(value)


def test_nesting_beyond_the_limit_is_refused() -> None:
    cyclic: list[Any] = []
    cyclic.append(cyclic)
    with pytest.raises(TypeError, match="nested deeper"):
        encode(cyclic)


@pytest.mark.parametrize(
    "tagged",
    [{"$set": 1}, {"$set": [[1]]}, {"$x": 1}, {"$map": [1]}, {"$bytes": "?"}, {"$float": "1"}, {"$complex": [1]}, {"$complex": ["a", 1]}],
)
def test_tag_whose_content_does_not_fit_is_refused(tagged: Any) -> None:
    with pytest.raises(ValueError, match="tag"):
        decode(tagged)


@pytest.mark.parametrize("value", [math.inf, {1: 2}, (1,), b"a"])
def test_what_is_not_json_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"JSON|text"):
        check_tagged([value])
