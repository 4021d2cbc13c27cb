"""pass@k against counting by hand."""

from itertools import combinations

import pytest

from microcoder_core.judge.pass_at_k import pass_at_k


@pytest.mark.parametrize("num_samples", [1, 2, 5, 8])
def test_equals_the_share_of_draws_with_a_right_one(num_samples: int) -> None:
    for num_correct in range(num_samples + 1):
        samples = [number < num_correct for number in range(num_samples)]
        for k in range(1, num_samples + 1):
            draws = list(combinations(samples, k))
            assert pass_at_k(num_samples, num_correct, k) == pytest.approx(sum(map(any, draws)) / len(draws))


def test_known_values() -> None:
    assert pass_at_k(10, 3, 1) == pytest.approx(0.3)
    assert pass_at_k(10, 3, 5) == pytest.approx(1 - 21 / 252)
    assert pass_at_k(200, 1, 100) == pytest.approx(0.5)


@pytest.mark.parametrize(("num_samples", "num_correct", "k"), [(4, 1, 5), (4, 5, 1), (4, -1, 1), (4, 1, 0)])
def test_counts_that_cannot_be_are_refused(num_samples: int, num_correct: int, k: int) -> None:
    with pytest.raises(ValueError, match="must be"):
        pass_at_k(num_samples, num_correct, k)
