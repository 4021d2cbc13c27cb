"""Compare methods: tables, and properties that hold for any answer."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from microcoder_core.judge.compare import accepting_method, methods, numbers
from microcoder_core.judge.compare.canonical import canonical, digits
from microcoder_core.judge.config import Chain
from microcoder_core.records import Checker, CheckerKind, Form
from microcoder_core.values import encode

WORDS = st.text(st.characters(codec="utf-8", exclude_characters=" \t\n\r\v\f"), min_size=1, max_size=5)
BLANKS = st.text(" \t\n\r\v\f", min_size=1, max_size=3)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4) | st.tuples(inner, inner)
)


def method_of(kind: CheckerKind, expected: Any, output: Any, form: Form = "stdin", chain: Chain = "guarded", **fields: Any) -> str | None:
    if form == "function":
        expected, output = encode(expected), encode(output)
    return accepting_method(methods(chain, Checker(kind=kind, **fields), form, [expected]), expected, output)


def value_method(kind: CheckerKind, expected: Any, output: Any, **fields: Any) -> str | None:
    return method_of(kind, expected, output, "function", **fields)


@given(st.lists(WORDS, max_size=6), st.data())
def test_tokens_do_not_see_blanks(words: list[str], data: st.DataObject) -> None:
    spaced = "".join(data.draw(BLANKS) + word for word in words) + data.draw(BLANKS)
    assert method_of("tokens", " ".join(words), spaced) == "tokens"


@given(st.lists(WORDS, max_size=6), st.lists(WORDS, max_size=6))
def test_tokens_accept_nothing_else(expected: list[str], output: list[str]) -> None:
    assert (method_of("tokens", " ".join(expected), " ".join(output)) is not None) == (expected == output)


@given(VALUES)
def test_exact_accepts_every_value_for_itself(value: Any) -> None:
    assert value_method("exact", value, value) == "exact"


@given(VALUES, VALUES)
def test_exact_values_are_equal_values(expected: Any, output: Any) -> None:
    """What exact accepts, Python's == accepts too, once tuples are lists."""
    if value_method("exact", expected, output):
        assert _as_lists(expected) == _as_lists(output)


@given(st.lists(LEAVES, max_size=6), st.randoms())
def test_unordered_accepts_every_order(items: list[Any], random: Any) -> None:
    shuffled = random.sample(items, len(items))
    assert value_method("unordered", items, shuffled) is not None


@given(st.lists(st.integers(0, 3), max_size=6), st.lists(st.integers(0, 3), max_size=6))
def test_unordered_counts_duplicates(expected: list[int], output: list[int]) -> None:
    assert (value_method("unordered", expected, output) is not None) == (sorted(expected) == sorted(output))


@given(st.integers(), st.integers())
def test_integers_are_never_close(expected: int, output: int) -> None:
    assert (method_of("float", str(expected), str(output)) is not None) == (expected == output)
    assert (value_method("float", expected, output) is not None) == (expected == output)


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
def test_reals_are_close_within_either_tolerance(expected: float, output: float) -> None:
    close = math.isclose(expected, output, rel_tol=0, abs_tol=1e-6) or abs(expected - output) <= 1e-6 * abs(expected)
    assert (value_method("float", expected, output) is not None) == close


@given(st.integers())
def test_digits_are_those_of_str(number: int) -> None:
    assert digits(number) == str(number)


@given(
    st.binary(max_size=20)
    | st.dictionaries(st.sampled_from(["$set", "$map", "$tuple", "$x"]), st.none() | st.integers() | st.lists(st.none()))
)
def test_forged_value_is_refused_without_a_crash(value: Any) -> None:
    for chain in ("guarded", "microcoder", "strict"):
        accepting_method(methods(chain, Checker(kind="unordered"), "function", [[1]]), [1], value)


@pytest.mark.parametrize(
    ("kind", "expected", "output", "method"),
    [
        ("tokens", "5\u00a06", "5 6", None),
        ("tokens", "ab", "a b", None),
        ("tokens", "", " \n", "tokens"),
        ("tokens", "1", "1 1", None),
        ("lines", "1 2\n3", "1  2 \n3\n\n", "lines"),
        ("lines", "1 2 3", "1\n2\n3", None),
        ("lines", "1\n\n2", "1\n2", None),
        ("exact", "  #\n #", "  # \n #\n\n", "exact"),
        ("exact", "  #", "#", None),
        ("exact", "a b", "a  b", None),
        ("float", "0.1", "0.1000001", "float"),
        ("float", "0.1", "0.10001", None),
        ("float", "1000000000.0", "1000000000.5", "float"),
        ("float", "1.0", "nan", None),
        ("float", "1.0", "1_0", None),
        ("float", "1.0", "\uff11.0", None),
        ("float", "1e308", "inf", None),
        ("float", "1.0 2.0", "1.0", None),
        ("float", "3", "3.0000000001", "float"),
        ("float", "x 1.5", "x 1.50", "float"),
        ("float", "x 1.5", "y 1.5", None),
        ("yesno", "YES\nNo", "yes no", "yesno"),
        ("yesno", "YES", "NO", None),
        ("yesno", "abc", "ABC", None),
        ("unordered_tokens", "1 2 2", "2 1 2", "unordered_tokens"),
        ("unordered_tokens", "1 2 2", "1 1 2", None),
        ("unordered_lines", "a b\nc", "c\na  b", "unordered_lines"),
        ("unordered_lines", "a b\nc", "b a\nc", None),
    ],
)
def test_text(kind: CheckerKind, expected: str, output: str, method: str | None) -> None:
    assert method_of(kind, expected, output) == method


@pytest.mark.parametrize(
    ("kind", "expected", "output", "method"),
    [
        ("exact", [1, (2, 3)], (1, [2, 3]), "exact"),
        ("exact", 1, True, None),
        ("exact", 1, 1.0, None),
        ("exact", 0, False, None),
        ("exact", None, "null", None),
        ("exact", "1", 1, None),
        ("exact", {"3": 2}, {3: 2}, "exact"),
        ("exact", {"true": 1}, {True: 1}, "exact"),
        ("exact", {(1, 2): 3}, {(1, 2): 3}, "exact"),
        ("exact", {1, 2}, {2, 1}, "exact"),
        ("exact", {1, 2}, frozenset({2, 1}), "exact"),
        ("exact", [1, 2], {1, 2}, None),
        ("exact", 1j, 1j, "exact"),
        ("exact", b"a", b"a", "exact"),
        ("exact", b"a", "a", None),
        ("exact", float("inf"), float("inf"), "exact"),
        ("exact", float("inf"), float("-inf"), None),
        ("float", [0.1 + 0.2], [0.3], "float"),
        ("float", [1.0, 2.0], [[1.0, 2.0]], None),
        ("float", [1.0, 1.0], 1.0, None),
        ("float", 4.0, 4, "float"),
        ("float", 4, 4.0, "float"),
        ("float", 1.0, True, None),
        ("float", {"a": 0.1}, {"a": 0.1000001}, "float"),
        ("float", {"a": 0.1}, {"b": 0.1}, None),
        ("float", (0.1, "x"), [0.1000001, "x"], "float"),
        ("float", float("nan"), float("nan"), "exact"),
        ("float", 1.0, float("nan"), None),
        ("float", 1.5, 10**400, None),
        ("unordered", [[1, 2], [3]], [[3], [1, 2]], "unordered"),
        ("unordered", [[1, 2], [3]], [[3], [2, 1]], None),
        ("unordered", [1, 2], {1, 2}, "unordered"),
        ("unordered", [1, 1], {1}, None),
        ("yesno", "YES", "yes", "yesno"),
    ],
)
def test_values(kind: CheckerKind, expected: Any, output: Any, method: str | None) -> None:
    assert value_method(kind, expected, output) == method


@pytest.mark.parametrize(
    ("stored", "output", "method"),
    [
        (["YES", "NO"], "yes", "yesno"),
        (["Yes", "maybe"], "yes", None),
        (["Yes", "Possible"], "Yes", "tokens"),
        (["1.5", "2"], "1.5000001", "float"),
        (["2", "1.5"], "2.0", None),  # a stored integer is met exactly
        (["1", "2"], "1.0", None),
    ],
)
def test_auto_is_decided_from_all_stored_outputs(stored: list[str], output: str, method: str | None) -> None:
    assert accepting_method(methods("guarded", Checker(), "stdin", stored), stored[0], output) == method


def test_auto_for_values_allows_tolerance_where_any_is_a_float() -> None:
    assert accepting_method(methods("guarded", Checker(), "function", [1.5, 2]), 1.5, 1.5000001) == "float"
    assert accepting_method(methods("guarded", Checker(), "function", [1.5, 2]), 2, 2.0) is None
    assert accepting_method(methods("guarded", Checker(), "function", [1, 2]), 1, 1.0) is None


@pytest.mark.parametrize(
    ("expected", "output", "method"),
    [
        ("a\nb", "a\nb", "published_equality"),
        ("[1, 2]", "(1, 2)", "published_conversion"),
        ("1000000", "1000001", "published_closeness"),
        ("a\nb", " a\n\nb ", "published_line_splitting"),
        ("a b", "a\nb", "published_whitespace"),
        ("1\n2\n3\nx", "3\n1\n2\n1\nx", "published_sets"),
        ("impossible", "possible", None),
    ],
)
def test_published_chain_accepts_as_published(expected: str, output: str, method: str | None) -> None:
    assert method_of("tokens", expected, output, chain="microcoder") == method


def test_strict_chain_is_exact_whatever_the_checker() -> None:
    assert method_of("tokens", "a b", "a  b", chain="strict") is None
    assert method_of("float", 0.3, 0.1 + 0.2, "function", "strict") is None


def test_method_that_raises_has_not_accepted() -> None:
    def fails(expected: Any, output: Any) -> bool:
        raise ValueError

    assert accepting_method([("fails", fails)], 1, 1) is None


def test_tolerances_are_the_checkers() -> None:
    assert method_of("float", "1.0", "1.01", abs=0.1) == "float"
    assert method_of("float", "1.0", "1.01", abs=0.001, rel=0.0) is None


def test_real_tokens_are_told_from_others() -> None:
    assert [numbers.has_real(text) for text in ("1", "1.", ".5", "1e5", "-2.5", "1.2.3", "0x1p3", "nan", "v1.5")] == [
        False, True, True, True, True, False, False, False, False,
    ]  # fmt: skip


def test_canonical_integer_of_any_length() -> None:
    assert canonical(10**5000) == ("int", "1" + "0" * 5000)


def _as_lists(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_as_lists(item) for item in value]
    if isinstance(value, dict):
        return {key: _as_lists(item) for key, item in value.items()}
    return value
