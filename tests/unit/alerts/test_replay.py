"""Alarms of two sets of thresholds are paired by detector, severity and place."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from monitor.alerts.replay import Fire, Replay, difference
from monitor.detect.contract import Context, Row

fires = st.lists(
    st.builds(Fire, st.integers(0, 60), st.just(0), st.sampled_from(["a", "b"]), st.sampled_from(["warning", "critical"]), st.just(True)), max_size=8
)


def fire(row: int, detector: str = "a", severity: str = "warning", told: bool = True) -> Fire:
    return Fire(row, row, detector, severity, told)


def test_near_alarms_are_the_same_and_far_ones_are_not() -> None:
    assert difference([fire(10)], [fire(19)]) == ([], [])
    assert difference([fire(10)], [fire(25)]) == ([fire(25)], [fire(10)])
    assert difference([fire(10)], [fire(10, "b")]) == ([fire(10, "b")], [fire(10)])
    assert difference([fire(10), fire(12)], [fire(12)]) == ([], [fire(10)])


@given(one=fires, other=fires)
def test_what_is_gained_one_way_is_lost_the_other(one: list[Fire], other: list[Fire]) -> None:
    assert difference(one, one) == ([], [])
    gained, lost = difference(one, other)
    assert len(one) - len(lost) == len(other) - len(gained)


def test_incidents_count_what_people_would_be_told() -> None:
    replay = Replay("r", Context(), fires=[fire(5), fire(9), fire(12, told=False), fire(40)])
    assert replay.incidents == 2


def test_stretches_change_nothing() -> None:
    rows = [Row(i, i, {"opt.loss": float("nan") if 10 <= i < 13 else 0.1, "reward.task.mean": 0.5}) for i in range(40)]
    whole, parts = Replay("r", Context()), Replay("r", Context())
    whole.feed(rows)
    for start in range(0, 40, 7):
        parts.feed(rows[start : start + 7])
    assert whole.fires == parts.fires
    assert whole.fires
