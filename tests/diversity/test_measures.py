import pytest
from hypothesis import given
from hypothesis import strategies as st

from microcoder_core.diversity.measures import distinct_n, distinct_programs, pairwise_dissimilarity, token_entropy
from microcoder_core.records import Completion

responses = st.lists(st.lists(st.integers(0, 9), max_size=20), min_size=1, max_size=8)


def completion(text: str, *logprobs: float) -> Completion:
    return Completion(text=text, token_ids=(1,) * len(logprobs), finish_reason="stop", logprobs=logprobs, temperature=1.0)


@pytest.mark.parametrize(
    ("group", "value"),
    [
        ([[1, 2, 3, 4]], 1.0),
        ([[1, 2, 3, 4], [1, 2, 3, 4]], 0.5),  # greedy copies: not 0
        ([[1, 2, 3, 4], [5, 6, 7, 8]], 1.0),
        ([[7] * 104], 1 / 101),  # a response that repeats itself
        ([[1, 2, 3]], None),
    ],
)
def test_distinct_4_by_hand(group: list[list[int]], value: float | None) -> None:
    assert distinct_n(group) == value


@pytest.mark.parametrize(
    ("group", "value"),
    [
        ([[1, 2, 3, 4, 5], [1, 2, 3, 4, 5]], 0.0),
        ([[1, 2, 3, 4], [5, 6, 7, 8]], 1.0),
        ([[1, 2, 3, 4, 5], [1, 2, 3, 4, 6]], 0.5),
        ([[1, 2, 3, 4]], None),
    ],
)
def test_pairwise_dissimilarity_by_hand(group: list[list[int]], value: float | None) -> None:
    assert pairwise_dissimilarity(group) == value


@given(responses)
def test_measures_stay_in_0_to_1(group: list[list[int]]) -> None:
    for value in (distinct_n(group), pairwise_dissimilarity(group)):
        assert value is None or 0 <= value <= 1


def test_programs_that_differ_in_names_and_layout_are_one() -> None:
    texts = ["def f(a):\n    return a + 1", "def f(b):\n    # add\n    return (b + 1)", "def f(a):\n    return a - 1", "no program ("]
    assert distinct_programs([completion(text) for text in texts]) == pytest.approx(2 / 3)


def test_token_entropy_is_the_mean_negative_logprob() -> None:
    assert token_entropy([completion("", -1.0, -3.0), completion("", -2.0)]) == 2.0
    assert token_entropy([completion("")]) is None
