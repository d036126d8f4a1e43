"""Who is told: silences, routes, hours; every refusal has its reason."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest

from monitor.alerts.routing import Facts, Route, Silence, decide, matches

FACTS = Facts("math", "run-17", "grpo 7b", "entropy_low", "policy", "warning", ("prod", "h100"))
NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
"""A Monday."""


@pytest.mark.parametrize(
    ("matcher", "fits"),
    [
        ({}, True),
        ({"project": "math"}, True),
        ({"project": "ma*", "organ": "policy"}, True),
        ({"project": "Math"}, False),
        ({"run": "run-1?"}, True),
        ({"run": "grpo*"}, True),
        ({"run": "17"}, False),
        ({"tag": "prod"}, True),
        ({"tag": "dev"}, False),
        ({"project": "math", "detector": "no_signal"}, False),
        ({"colour": "red"}, False),
    ],
)
def test_matchers(matcher, fits):
    assert matches(matcher, FACTS) is fits


def test_without_routes_every_channel_is_told():
    assert decide(FACTS, NOW, [], [], ["slack", "webhook"]).channels == ("slack", "webhook")
    assert decide(FACTS, NOW, [], [], []).muted == "no channel is set up"


def test_a_silence_mutes_until_its_time_and_says_whose():
    silence = Silence({"project": "math"}, "cluster moves", "ada", NOW + timedelta(hours=1))
    decision = decide(FACTS, NOW, [silence], [], ["slack"])
    assert decision.channels == () and decision.muted == "silenced by ada until 2026-03-02 13:00 UTC: cluster moves"
    assert decide(FACTS, NOW + timedelta(hours=1), [silence], [], ["slack"]).channels == ("slack",)
    assert decide(FACTS, NOW, [Silence({"project": "code"}, "r", "a", silence.until)], [], ["slack"]).channels == ("slack",)


def test_the_channels_of_all_fitting_routes_are_told_once():
    routes = [
        Route(("slack", "pager"), {"project": "math"}),
        Route(("slack",), {"detector": "entropy_*"}),
        Route(("mail",), {"project": "code"}),
        Route(("loud",), severity="critical"),
        Route(("gone",)),
    ]
    assert decide(FACTS, NOW, [], routes, ["slack", "pager", "mail", "loud"]).channels == ("slack", "pager")
    assert decide(FACTS, NOW, [], routes[2:4], ["mail", "loud"]).muted == "no route fits"


def test_hours_and_days_in_the_routes_own_zone():
    berlin = ZoneInfo("Europe/Berlin")
    office = Route(("slack",), days=("mon", "tue"), begin=time(9), end=time(17), zone=berlin)
    told = [decide(FACTS, NOW.replace(hour=hour), [], [office], ["slack"]) for hour in (7, 8, 15, 16)]
    assert [bool(d.channels) for d in told] == [False, True, True, False]
    assert told[0].muted == "outside the hours of its routes"
    assert not office.open_at(NOW + timedelta(days=2))


def test_a_night_belongs_to_the_day_on_which_it_began():
    night = Route(("pager",), days=("mon",), begin=time(22), end=time(6), zone=UTC)
    at = [datetime(2026, 3, day, hour, tzinfo=UTC) for day, hour in ((2, 21), (2, 23), (3, 5), (3, 6), (3, 23), (2, 3))]
    assert [night.open_at(moment) for moment in at] == [False, True, True, False, False, False]
