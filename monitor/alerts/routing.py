"""Who is told of an alarm: silences first, then routes. Pure: the time is an argument, and every refusal has a named reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, time, tzinfo
from fnmatch import fnmatchcase

from monitor.alerts.book import rank

MATCHABLE = ("project", "run", "detector", "organ", "tag")
"""What a matcher may name. ``run`` matches the run's identifier or its name, ``tag`` any of its tags."""

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


@dataclass(frozen=True, slots=True)
class Facts:
    """What an alarm is about, for matching."""

    project: str
    run: str
    run_name: str
    detector: str
    organ: str
    severity: str
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Silence:
    """Nobody is told of what matches before ``until``."""

    matcher: Mapping[str, str]
    reason: str
    author: str
    until: datetime


@dataclass(frozen=True, slots=True)
class Route:
    """Alarms that match, of at least ``severity``, go to ``channels``; on ``days`` and between ``begin`` and ``end`` of ``zone`` only.

    An interval that ends before it begins runs past midnight and belongs to the day on which it began.
    """

    channels: tuple[str, ...]
    matcher: Mapping[str, str] = field(default_factory=dict)
    severity: str = "warning"
    days: tuple[str, ...] = DAYS
    begin: time | None = None
    end: time | None = None
    zone: tzinfo | None = None

    def open_at(self, at: datetime) -> bool:
        here = at.astimezone(self.zone)
        now, day = here.time(), here.weekday()
        if self.begin is None or self.end is None:
            return DAYS[day] in self.days
        if self.begin <= self.end:
            return DAYS[day] in self.days and self.begin <= now < self.end
        return (now >= self.begin and DAYS[day] in self.days) or (now < self.end and DAYS[day - 1] in self.days)


@dataclass(frozen=True, slots=True)
class Decision:
    """The channels that carry an alarm, or why none does."""

    channels: tuple[str, ...] = ()
    muted: str | None = None


def matches(matcher: Mapping[str, str], facts: Facts) -> bool:
    """Whether every pattern of ``matcher`` (shell wildcards, whole and case-sensitive) fits; an empty matcher fits everything."""
    offered = {
        "project": (facts.project,),
        "run": (facts.run, facts.run_name),
        "detector": (facts.detector,),
        "organ": (facts.organ,),
        "tag": facts.tags,
    }
    return all(any(fnmatchcase(value, pattern) for value in offered.get(name, ())) for name, pattern in matcher.items())


def decide(facts: Facts, at: datetime, silences: Iterable[Silence], routes: Sequence[Route], channels: Sequence[str]) -> Decision:
    """Who is told of an alarm. Without routes every channel is; with routes, the channels of all that fit."""
    for silence in silences:
        if at < silence.until and matches(silence.matcher, facts):
            return Decision(muted=f"silenced by {silence.author} until {silence.until:%Y-%m-%d %H:%M} UTC: {silence.reason}")
    if not channels:
        return Decision(muted="no channel is set up")
    if not routes:
        return Decision(tuple(channels))
    fitting = [route for route in routes if matches(route.matcher, facts) and rank(facts.severity) >= rank(route.severity)]
    if not fitting:
        return Decision(muted="no route fits")
    now = dict.fromkeys(name for route in fitting if route.open_at(at) for name in route.channels if name in channels)
    return Decision(tuple(now)) if now else Decision(muted="outside the hours of its routes")
