"""Who is told: silences, routes, hours; every refusal has its reason."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest

from monitor.alerts.routing import Decision, Facts, Route, Silence, decide, matches, repeats

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


def test_a_digest_takes_less_than_an_alarm_and_gives_way_to_what_goes_at_once():
    watch = Facts("math", "r", "r", "grad_norm", "optimizer", "watch")
    hourly, daily, now = (
        Route(("mail", "slack"), severity="watch", digest_s=3600.0),
        Route(("mail",), severity="watch", digest_s=86400.0),
        Route(("slack",)),
    )
    channels = ["slack", "mail"]
    assert decide(watch, NOW, [], [hourly, daily, now], channels) == Decision((), None, {"mail": 3600.0, "slack": 3600.0})
    assert decide(FACTS, NOW, [], [hourly, daily, now], channels) == Decision(("slack",), None, {"mail": 3600.0})
    assert decide(watch, NOW, [], [now], channels).muted == "no route fits"
    assert decide(watch, NOW, [], [], channels) == Decision(muted="it is no alarm")


def test_who_is_told_again():
    critical = Facts("math", "r", "r", "grad_norm", "optimizer", "critical")
    routes = [Route(("slack", "mail"), repeat_s=7200.0), Route(("mail",), severity="critical", repeat_s=3600.0), Route(("webhook",))]
    assert repeats(critical, NOW, routes) == {"slack": 7200.0, "mail": 3600.0}
    assert repeats(FACTS, NOW, routes) == {"slack": 7200.0, "mail": 7200.0}
    closed = Route(("slack",), begin=time(0), end=time(1), repeat_s=60.0)
    assert repeats(critical, NOW, [closed]) == {}
