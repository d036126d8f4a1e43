"""The ``[[route]]`` tables of ``vitals.toml``: which alarms go to which channels, and when."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import time
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

from monitor.alerts.book import ALARMS, PRESENCE
from monitor.alerts.routing import DAYS, MATCHABLE, Route
from monitor.alerts.spans import read_span
from monitor.detect.contract import SEVERITIES
from monitor.detect.registry import DETECTOR_BY_ID, DETECTORS

Complain = Callable[[str, str], None]
"""Takes the key that is wrong, empty for the whole table, and a sentence."""

KEYS = ("channels", "severity", "match", "days", "hours", "zone", "digest", "repeat")


def read_route(table: Mapping[str, Any], complain: Complain) -> Route | None:
    """One route, or None after complaining.

    ``channels`` names at least one; ``severity`` is the least that is sent, ``match`` patterns over project, run, detector, organ and tag,
    ``days`` and ``hours`` ("09:00-18:00", past midnight too) when it is open, in ``zone``. ``digest`` ("1h") gathers what is sent, and lets
    ``severity`` be less than an alarm; ``repeat`` ("4h") sends an open critical alarm again until somebody acknowledges it.
    """
    wrong: list[str] = []

    def say(key: str, sentence: str) -> None:
        wrong.append(key)
        complain(key, sentence)

    for key in table:
        if key not in KEYS:
            say(key, f"a route has no {key!r}; it has: {', '.join(KEYS)}")
    channels = _words(table.get("channels"))
    if not channels:
        say("channels" if "channels" in table else "", 'a route needs channels, such as channels = ["slack"]')
    severity = table.get("severity", "warning")
    allowed = ALARMS if "digest" not in table else SEVERITIES
    if severity not in allowed:
        more = ", or with a digest information or watch" if severity in SEVERITIES else ""
        say("severity", f"severity must be {' or '.join(allowed)}{more}, not {severity!r}")
    match = read_match(table, say)
    days = _words(table.get("days", list(DAYS)))
    if not days or not set(days) <= set(DAYS):
        say("days", f"days are among {', '.join(DAYS)}")
    begin, end = _hours(table.get("hours"), say)
    zone = _zone(table.get("zone"), say)
    digest, repeat = (read_span(table.get(key), partial(say, key)) for key in ("digest", "repeat"))
    if digest is not None and repeat is not None:
        say("repeat", "a route has a digest or a repeat, not both")
    return None if wrong else Route(tuple(channels), match, str(severity), tuple(days), begin, end, zone, digest, repeat)


def read_match(table: Mapping[str, Any], complain: Complain) -> dict[str, str]:
    """The patterns of a table's ``match``; a detector or an organ that no pattern of it can mean is a slip."""
    match = table.get("match", {})
    if not isinstance(match, dict) or not all(key in MATCHABLE and isinstance(value, str) for key, value in match.items()):
        complain("match", f"match holds patterns, such as {{project = 'math*'}}, over: {', '.join(MATCHABLE)}")
        return {}
    known = {"detector": (*DETECTOR_BY_ID, *PRESENCE), "organ": (*dict.fromkeys(each.organ for each in DETECTORS),)}
    for key, names in known.items():
        if key in match and not any(fnmatchcase(name, match[key]) for name in names):
            close = get_close_matches(match[key], names, 1)
            complain("match", f"there is no {key} {match[key]!r}" + (f"; did you mean {close[0]!r}?" if close else ""))
    return dict(match)


def _words(value: Any) -> list[str]:
    return value if isinstance(value, list) and all(isinstance(each, str) for each in value) else []


def _hours(value: Any, say: Complain) -> tuple[time | None, time | None]:
    if value is None:
        return None, None
    try:
        begin, end = (time.fromisoformat(part.strip()) for part in str(value).split("-"))
    except ValueError:
        say("hours", f'hours are written "09:00-18:00", not {value!r}')
        return None, None
    return begin, end


def _zone(value: Any, say: Complain) -> ZoneInfo | None:
    if value is None:
        return None
    try:
        return ZoneInfo(value)
    except (KeyError, ValueError, TypeError, OSError):
        say("zone", f"there is no time zone {value!r}; write one such as Europe/Berlin")
        return None
