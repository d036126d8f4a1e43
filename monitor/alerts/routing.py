"""Who is told of an alarm: silences first, then routes. Pure: the time is an argument, and every refusal has a named reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, time, tzinfo
from fnmatch import fnmatchcase

from monitor.alerts.book import is_alarm, rank

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
    """What matches, of at least ``severity``, goes to ``channels``; on ``days`` and between ``begin`` and ``end`` of ``zone`` only.

    With ``digest_s`` it is gathered and sent together every so many seconds, and may be less than an alarm. With ``repeat_s`` a critical alarm is
    sent again every so many seconds while it is open and nobody has acknowledged it. An interval that ends before it begins runs past midnight
    and belongs to the day on which it began.
    """

    channels: tuple[str, ...]
    matcher: Mapping[str, str] = field(default_factory=dict)
    severity: str = "warning"
    days: tuple[str, ...] = DAYS
    begin: time | None = None
    end: time | None = None
    zone: tzinfo | None = None
    digest_s: float | None = None
    repeat_s: float | None = None

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
    """The channels that carry an alarm at once, those that carry it in a digest every so many seconds, or why none does."""

    channels: tuple[str, ...] = ()
    muted: str | None = None
    digests: Mapping[str, float] = field(default_factory=dict)


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


def silenced(facts: Facts, at: datetime, silences: Iterable[Silence]) -> str | None:
    """Why nobody is told, and nothing done, about what a silence matches; None where none does."""
    for silence in silences:
        if at < silence.until and matches(silence.matcher, facts):
            return f"silenced by {silence.author} until {silence.until:%Y-%m-%d %H:%M} UTC: {silence.reason}"
    return None


def decide(facts: Facts, at: datetime, silences: Iterable[Silence], routes: Sequence[Route], channels: Sequence[str]) -> Decision:
    """Who is told. Without routes every channel is, of alarms; with routes, the channels of all that fit."""
    if (why := silenced(facts, at, silences)) is not None:
        return Decision(muted=why)
    if not channels:
        return Decision(muted="no channel is set up")
    if not routes:
        return Decision(tuple(channels)) if is_alarm(facts.severity) else Decision(muted="it is no alarm")
    fitting = [route for route in routes if _fits(route, facts)]
    if not fitting:
        return Decision(muted="no route fits")
    open_now = [route for route in fitting if route.open_at(at)]
    now = tuple(dict.fromkeys(name for route in open_now if route.digest_s is None for name in route.channels if name in channels))
    digests: dict[str, float] = {}
    for route in open_now:
        for name in route.channels:
            if route.digest_s is not None and name in channels and name not in now:
                digests[name] = min(route.digest_s, digests.get(name, route.digest_s))
    return Decision(now, digests=digests) if now or digests else Decision(muted="outside the hours of its routes")


def repeats(facts: Facts, at: datetime, routes: Iterable[Route]) -> dict[str, float]:
    """The channels that are told again of an open critical alarm, and after how many seconds."""
    found: dict[str, float] = {}
    for route in routes:
        if route.repeat_s is not None and _fits(route, facts) and route.open_at(at):
            for name in route.channels:
                found[name] = min(route.repeat_s, found.get(name, route.repeat_s))
    return found


def _fits(route: Route, facts: Facts) -> bool:
    """Less than an alarm is told of in digests only."""
    loud = is_alarm(facts.severity) or route.digest_s is not None
    return loud and rank(facts.severity) >= rank(route.severity) and matches(route.matcher, facts)
