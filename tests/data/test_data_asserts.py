"""Asserts as tests: what becomes one, with which checker, and what keeps its asserts."""

import ast

import pytest

from microcoder_core.data.asserts import EXACT, NUMBER, REAL, asserts_to_tests
from microcoder_core.data.literals import NotConstant, constant_value
from microcoder_core.records import Checker

WHOLE = "def f(x):\n    return x\n"
DIVIDES = "def f(x):\n    return x / 2\n"


def converted(asserts, reference=WHOLE):
    return asserts_to_tests(ast.parse(asserts).body, "f", reference)


def single(asserts, reference=WHOLE):
    (test,), checker = converted(asserts, reference)
    return test.input, test.expected, checker


@pytest.mark.parametrize(
    ("text", "arguments", "expected"),
    [
        ("assert f(1, [2]) == 'a'", [1, [2]], "a"),
        ("assert 'a' == f(1)", [1], "a"),
        ("assert f() == None", [], None),
        ("assert f(1) is None", [1], None),
        ("assert f(1) is True, 'message'", [1], True),
        ("assert f(1)", [1], True),
        ("assert not f(1)", [1], False),
        ("assert f(-1) == -2", [-1], -2),
        ("assert f((1, (2,)), {3}) == (4, [5])", [{"$tuple": [1, {"$tuple": [2]}]}, {"$set": [3]}], {"$tuple": [4, [5]]}),
        (
            "assert f({1: 'a'}, b'x', 2j) == {'k': ()}",
            [{"$map": [[1, "a"]]}, {"$bytes": "eA=="}, {"$complex": [0.0, 2.0]}],
            {"k": {"$tuple": []}},
        ),
        ("assert f(3 * 19, 'a' + 'b') == 2 ** 3", [57, "ab"], 8),
        ("assert f(set()) == 1; assert True; print; pass", [{"$set": []}], 1),
    ],
)
def test_plain_assert_becomes_a_test(text, arguments, expected):
    assert single(text) == (arguments, expected, EXACT)


@pytest.mark.parametrize(
    "text",
    [
        "for i in range(3):\n    assert f(i) == i",
        "assert f(x) == 1",
        "assert f(1) == g(1)",
        "assert g(1) == 1",
        "assert f(1) > 2",
        "assert f(1) != 2",
        "assert f(1) == 2 == 2",
        "assert f(x=1) == 2",
        "assert f(*[1]) == 2",
        "assert f(1).a == 2",
        "assert f.g(1) == 2",
        "assert tuple(f(1)) == (1,)",
        "assert f(f(1)) == 2",
        "assert f(1) == f(1)",
        "assert f(1) == 2 and f(2) == 3",
        "assert f(int) == 2",
        "assert f([i for i in range(3)]) == 2",
        "assert f('a' * 10 ** 9) == 2",
        "assert f(9 ** 9 ** 9) == 2",
        "assert f({[1]}) == 2",
        "assert f(1 / 0) == 2",
        "assert f(...) == 2",
        "assert abs(f(1) - 2) < 1e-6\nassert abs(f(1) - 3) < 1e-3",
        "assert abs(f(1) - 2) < 0",
        "assert abs(f(1) + 2) < 1e-6",
        "assert False",
        "import math\nassert f(1) == 2",
    ],
)
def test_other_assert_is_kept(text):
    assert converted(text) is None


def test_one_assert_beyond_a_test_keeps_all():
    assert converted("assert f(1) == 1\nassert f(1) == g()") is None


def test_real_result_gets_a_tolerance():
    tests, checker = converted("assert f(1) == 0.5\nassert f(2) == 1\nassert f(3) == [1, 2.5]")
    assert checker == REAL
    assert [(test.expected, type(test.expected)) for test in tests[:2]] == [(0.5, float), (1, int)]


def test_stated_tolerance_is_kept():
    assert single("assert abs(f(1) - 2 / 4) < 1e-3") == ([1], 0.5, Checker(kind="float", abs=1e-3, rel=0.0))


def test_whole_results_are_numbers_where_the_reference_divides():
    assert single("assert f([2]) == [1, (2,)]", DIVIDES) == ([[2]], [1, {"$tuple": [2]}], NUMBER)


@pytest.mark.parametrize(
    "reference", ["import math\ndef f(x): return math.sqrt(x)", "def f(x): return x * 1.0", "def f(x):\n    x /= 2\n    return x"]
)
def test_reference_that_makes_reals_is_told(reference):
    assert single("assert f(4) == 2", reference)[2] == NUMBER


def test_true_and_false_are_no_numbers():
    assert single("assert f(4) == True", DIVIDES) == ([4], True, EXACT)


def test_reference_that_returns_1_for_true_keeps_its_asserts():
    reference = "def f(x):\n    if x: return 1\n    return 0"
    assert converted("assert f(1) == True", reference) is None
    assert single("assert f(1) == 1", reference)[2] == EXACT


@pytest.mark.parametrize("text", ["'%s' % 1", "open('x')", "x", "-'a'", "[*[1]]", "{**{}}", "f'{1}'", "'a' * 20_000"])
def test_what_is_not_constant(text):
    with pytest.raises(NotConstant):
        constant_value(ast.parse(text, mode="eval").body)
