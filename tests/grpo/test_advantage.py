import pytest
from hypothesis import given
from hypothesis import strategies as st

from microcoder_core.grpo.advantage import group_advantages, overlong_punishment
from microcoder_core.grpo.config import AdvantageConfig


def test_group_norm_by_hand() -> None:
    # rewards 1, 0, 0, 0: mean 1/4, std (n - 1) = 1/2
    assert group_advantages([1.0, 0.0, 0.0, 0.0], "group_norm") == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=1e-5)


def test_group_mean_by_hand() -> None:
    assert group_advantages([1.0, 0.0, 0.0, 0.0], "group_mean") == [0.75, -0.25, -0.25, -0.25]


def test_ungraded_enters_neither_mean_nor_std() -> None:
    with_ungraded = group_advantages([1.0, None, 0.0, 0.0, None], "group_norm")
    without = group_advantages([1.0, 0.0, 0.0], "group_norm")
    assert [with_ungraded[0], *with_ungraded[2:4]] == without
    assert with_ungraded[1] == with_ungraded[4] == 0


@pytest.mark.parametrize("rewards", [[1.0, 1.0], [0.1] * 7, [None, 1.0], [None, None], [0.0]])
def test_no_spread_gives_exact_zeros(rewards: list[float | None]) -> None:
    assert group_advantages(rewards, "group_norm") == [0.0] * len(rewards)


@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=2, max_size=16), st.randoms())
def test_order_of_the_group_does_not_matter(rewards: list[float], random) -> None:  # type: ignore[no-untyped-def]
    order = list(range(len(rewards)))
    random.shuffle(order)
    shuffled = group_advantages([rewards[place] for place in order], "group_norm")
    assert shuffled == pytest.approx([group_advantages(rewards, "group_norm")[place] for place in order])


@pytest.mark.parametrize(("length", "punishment"), [(60, 0.0), (80, 0.0), (90, 0.5), (100, 1.0)])
def test_overlong_punishment_is_linear_over_the_buffer(length: int, punishment: float) -> None:
    assert overlong_punishment(length, AdvantageConfig(overlong_buffer_share=0.2), 100) == pytest.approx(punishment)
