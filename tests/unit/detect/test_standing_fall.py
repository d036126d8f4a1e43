"""A ruined run does not become well by staying ruined."""

from __future__ import annotations

from streams import walk

from monitor.alerts.judgement import context, judge
from monitor.detect.contract import Row


def reward(*levels: tuple[float, int]) -> list[dict[str, float]]:
    values = [level for level, rows in levels for _ in range(rows)]
    return [{"reward.task.mean": value + 0.01 * (i % 3)} for i, value in enumerate(values)]


def holds(rows: list[dict[str, float]]) -> list[bool]:
    return [any(finding.detector == "peak_and_fall" for finding in found) for found in walk(rows)]


def test_a_fall_holds_as_long_as_the_reward_stays_down() -> None:
    held = holds(reward((0.8, 40), (0.05, 200)))
    assert not any(held[:40]) and all(held[45:])


def test_a_fall_is_over_when_half_of_it_is_won_back() -> None:
    held = holds(reward((0.8, 40), (0.1, 30), (0.3, 30), (0.6, 30)))
    assert all(held[45:100]), "a quarter won back is not enough"
    assert not any(held[110:])


def test_the_alert_of_a_ruined_run_stays_open_and_that_of_a_recovered_one_resolves() -> None:
    def ends(rows: list[dict[str, float]]) -> list[str]:
        told = judge("run", {}, [Row(i, i, values) for i, values in enumerate(rows)], context()).transitions
        return [change.to_state for change in told if change.finding.detector == "peak_and_fall"]

    assert ends(reward((0.8, 40), (0.05, 150)))[-1] == "critical"
    assert ends(reward((0.8, 40), (0.05, 30), (0.8, 60)))[-1] == "resolved"


def test_a_fall_that_began_mildly_is_critical_once_half_is_gone_for_good() -> None:
    rows = [Row(i, i, values) for i, values in enumerate(reward((0.8, 40), (0.5, 20), (0.3, 40)))]
    told = [change for change in judge("run", {}, rows, context()).transitions if change.finding.detector == "peak_and_fall"]
    assert [change.to_state for change in told if change.alarms] == ["warning", "critical"]
