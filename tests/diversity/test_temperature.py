import pytest

from microcoder_core.diversity.temperature import Candidate, Trend, choose_temperature, fit_trend, holds

LIMITS = {"max_change": 0.1, "max_swing": 0.35}


def candidate(temperature: float, change: float = 0.0, pass_at_1: float = 0.5, swing: float = 0.0) -> Candidate:
    return Candidate(temperature=temperature, pass_at_1=pass_at_1, trend=Trend(late_change=change, swing=swing))


def choose(*candidates: Candidate) -> tuple[float, str]:
    return choose_temperature(candidates, min_pass_share=0.5, **LIMITS)


def test_trend_of_a_straight_line() -> None:
    trend = fit_trend([0.5, 0.45, 0.4, 0.35, 0.3])
    assert trend.late_change == pytest.approx(-0.1 / 0.4)  # from the middle point on
    assert trend.swing == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("diversity", "steady"),
    [
        ([0.70, 0.69, 0.71, 0.70, 0.70], True),
        ([0.75, 0.68, 0.66, 0.65, 0.66], True),  # a first adjustment, then it holds
        ([0.57, 0.53, 0.49, 0.45, 0.41], False),  # a fall that goes on
        ([0.97, 0.80, 0.62, 0.60, 0.61], False),  # a violent swing, though it settles
    ],
)
def test_what_holds(diversity: list[float], steady: bool) -> None:
    assert holds(fit_trend(diversity), **LIMITS) is steady


def test_a_trend_needs_two_points() -> None:
    with pytest.raises(ValueError, match="two points"):
        fit_trend([0.5])


def test_takes_the_highest_temperature_that_holds() -> None:
    temperature, reason = choose(candidate(0.6, -0.3), candidate(1.0, -0.02), candidate(1.2, 0.05), candidate(1.8, -0.4))
    assert temperature == 1.2
    assert "holds" in reason


def test_takes_the_least_change_where_none_holds() -> None:
    temperature, reason = choose(candidate(0.6, -0.3), candidate(1.2, -0.15), candidate(1.8, 0.4))
    assert temperature == 1.2
    assert "no temperature's diversity holds" in reason


def test_a_temperature_without_right_answers_is_left_out_and_said() -> None:
    temperature, reason = choose(candidate(0.6, pass_at_1=0.6), candidate(1.8, pass_at_1=0.1))
    assert temperature == 0.6
    assert reason.endswith("left out for a pass@1 under 50% of the best: 1.8")
