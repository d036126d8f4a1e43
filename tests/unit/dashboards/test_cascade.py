"""The timeline of an incident: the first mover on top, the rest as it began, every alert once, on an axis that shows the onset."""

from __future__ import annotations

import dataclasses
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from views import T0, an_alert, text_of

from dashboards import acts, cascade
from dashboards.verdict import onset
from monitor.store.incidents import Incident, Member
from monitor.store.queries import AlertView, Change


def told(alerts: list[AlertView]) -> list[tuple[str, str]]:
    return [(place.alert.detector, place.cause.detector if place.cause else "") for place in cascade.arranged(alerts)]


def test_the_first_mover_is_on_top_and_the_rest_stands_as_it_began() -> None:
    alerts = [
        an_alert(1, "kl", since=30, held_by="aux"),
        an_alert(2, "aux", since=32),
        an_alert(3, "late", since=40),
        an_alert(4, "deeper", since=35, held_by="kl"),
    ]
    alerts.append(an_alert(5, "other", since=33))
    assert told(alerts) == [("aux", ""), ("kl", "aux"), ("other", ""), ("deeper", "kl"), ("late", "")]
    rows = [text_of(row) for row in cascade.timeline(alerts, 50)]
    assert ["follows from the first mover" in row for row in rows[:5]] == [False, True, False, False, False]
    assert "follows from “kl”" in rows[3]


def test_an_alert_that_outlived_its_cause_stands_for_itself() -> None:
    held = an_alert(1, "kl", since=30, held_by="aux")
    outlived = dataclasses.replace(held, changes=(*held.changes, Change(60, T0, "critical", "critical", "outlived")))
    assert held.held_by == "aux" and outlived.held_by == ""
    assert told([outlived, an_alert(2, "aux", since=32)]) == [("kl", ""), ("aux", "")]


@given(st.lists(st.tuples(st.integers(0, 50), st.sampled_from("abcd"), st.sampled_from(["", "a", "b", "c", "d", "x"])), max_size=9))
def test_every_alert_stands_on_the_timeline_once(given_: list[tuple[int, str, str]]) -> None:
    alerts = [an_alert(number, detector, since=since, held_by=cause) for number, (since, detector, cause) in enumerate(given_)]
    places = cascade.arranged(alerts)
    assert sorted(place.alert.id for place in places) == list(range(len(alerts)))
    began = [onset(place.alert) for place in places]
    assert began[1:] == sorted(began[1:]) and all(place.cause is None for place in places[:1])


@given(st.integers(0, 10**9), st.integers(1, 10**7))
def test_ticks_are_round_and_inside(first: int, wide: int) -> None:
    span = cascade.Span(first, first + wide)
    ticks = span.ticks()
    assert len(ticks) <= 6 and all(span.first <= tick <= span.last for tick in ticks)
    assert all(0 <= span.percent(step) <= 100 for step in (0, first, first + wide, 10**10))


def test_the_axis_shows_what_was_before_and_ends_with_the_last_alert() -> None:
    over = [an_alert(1, "kl", since=100, resolved=130), an_alert(2, "aux", since=110, resolved=160)]
    assert cascade.span(over, 5000) == cascade.Span(90, 160)
    assert cascade.span([*over, an_alert(3, "late", since=150)], 5000).last == 5000
    assert cascade.span([an_alert(1, "kl", since=0)], None).first == 0


def test_silences_can_be_as_narrow_as_the_leading_alarm_and_take_names_literally() -> None:
    member = Member(1, "no_signal", "signal", "warning", "open", 3, 4, 5, None, {"title": "Nothing to learn"})
    lead, step = "Nothing to learn", 4
    incident = Incident(UUID(int=1), "a[1]", "a", "p*", 1, "open", "warning", lead, step, T0, None, None, None, None, None, (member,))
    assert [matcher for _, matcher in acts.scopes(incident)] == [
        {"run": "a[[]1]"},
        {"run": "a[[]1]", "detector": "no_signal"},
        {"project": "p[*]", "detector": "no_signal"},
        {"project": "p[*]"},
    ]
