from __future__ import annotations

from monitor.cli.demo_story import Alarm, damage_step, in_time, learned, trailing_means


def curve(*values: float) -> list[tuple[int, float]]:
    return list(enumerate(values))


def test_trailing_means_need_five_points() -> None:
    assert trailing_means(curve(1, 1, 1, 1)) == []
    assert trailing_means(curve(0, 1, 1, 1, 1, 1)) == [(4, 0.8), (5, 1.0)]


def test_learning_needs_a_low_start_and_a_high_end() -> None:
    assert learned(curve(*[0.5] * 5, *[0.9] * 5))
    assert not learned(curve(*[0.7] * 5, *[0.9] * 5))
    assert not learned(curve(*[0.5] * 5, *[0.8] * 5))
    assert not learned(curve(0.5, 0.9))


def test_damage_is_half_of_the_best_trailing_mean() -> None:
    rise_and_fall = curve(*[0.4] * 5, *[0.8] * 5, *[0.0] * 5)
    assert damage_step(rise_and_fall) == 12
    assert damage_step(curve(*[0.8] * 5, *[0.5] * 20)) is None
    assert damage_step(curve(*[0.0] * 20)) is None
    assert damage_step([]) is None


def test_an_alarm_is_early_only_before_the_damage() -> None:
    before, at = Alarm("a", "warning", 11), Alarm("b", "critical", 12)
    assert in_time([before, at], 12) == [before]
    assert in_time([before, at], None) == []
