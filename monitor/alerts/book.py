"""The alert book of one run: what is open, since when, how bad, and what was told. Plain values that survive JSON."""

from __future__ import annotations

import dataclasses
import math
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from monitor import metrics, wire
from monitor.detect.contract import SEVERITIES, Finding
from monitor.detect.registry import DETECTOR_BY_ID

QUIET_ROWS = 10
"""Rows with the detector's metric and without a finding after which an episode closes."""

MOST_QUIET_ROWS = 160
"""Where the doubling of the needed quiet ends."""

ALARMS = ("warning", "critical")

PRESENCE = ("stalled", "lost", "crashed")
"""Alerts about rows that do not come: raised by the clock, over with the next row."""

LATE = "late rows"
"""Holds the alarms of rows that arrive long after they were logged, in the place of a detector that explains them."""

_NAMESPACE = uuid.UUID("6e0f5a4e-58a4-5d3c-9b8a-0d4d8c3b7a11")


def rank(severity: str) -> int:
    """The place of a severity in rising order; states without one (``ok``, ``resolved``) come below all."""
    return SEVERITIES.index(severity) if severity in SEVERITIES else -1


def is_alarm(severity: str) -> bool:
    return severity in ALARMS


def name_uid(run: str, *parts: object) -> str:
    """The name-based UUID (RFC 9562, version 5) of something in a run: whoever judges the same rows again gets the same."""
    return str(uuid.uuid5(_NAMESPACE, "\n".join((run, *map(str, parts)))))


def organ_of(finding: Finding) -> str:
    """The part of the run that a finding is about: its detector's, or its metric's where no such detector is registered."""
    if finding.detector in PRESENCE:
        return "pace"
    detector = DETECTOR_BY_ID.get(finding.detector)
    return metrics.describe(finding.metric).organ if detector is None else detector.organ


@dataclass(frozen=True, slots=True)
class Episode:
    """One episode of one detector. ``state`` is a severity while it is open, then ``resolved`` (after an alarm) or ``ok``.

    ``severity`` is the highest it reached, ``finding`` the one that reached it. ``alarm_step`` and ``alarm_index`` are where it last became an
    alarm. Steps are the run's, indices its rows. ``changes`` counts the transitions so far, ``quiet`` the quiet rows since the last finding.
    ``incident`` is the number of the incident it belongs to, 0 for none; ``told`` the highest severity that people were told of since it last
    opened, ``held_by`` the detector that explains it, so that nobody was told. ``by_hand``: a person closed it, and the condition has not
    gone since.
    """

    number: int
    uid: str
    state: str
    severity: str
    finding: Finding
    opened_step: int
    opened_index: int
    last_step: int
    last_index: int
    alarm_step: int | None = None
    alarm_index: int | None = None
    closed_step: int | None = None
    closed_index: int | None = None
    quiet: int = 0
    reopened: int = 0
    changes: int = 0
    incident: int = 0
    told: str = ""
    held_by: str = ""
    by_hand: bool = False

    @property
    def open(self) -> bool:
        return self.state in SEVERITIES

    @property
    def needed_quiet(self) -> int:
        first = 1 if self.finding.detector in PRESENCE else QUIET_ROWS
        return min(first << self.reopened, MOST_QUIET_ROWS)


@dataclass(frozen=True, slots=True)
class Book:
    """The alerts of one run: the latest episode of each detector, in the order in which the detectors first spoke.

    ``incidents`` counts the incidents so far; the newest last grew at the row ``grown_index``. ``late``: the rows arrive long after they were
    logged, and nobody is told of what they show.
    """

    run: str
    episodes: Mapping[str, Episode] = field(default_factory=dict)
    incidents: int = 0
    grown_index: int = -1
    late: bool = False

    @property
    def open(self) -> tuple[Episode, ...]:
        return tuple(episode for episode in self.episodes.values() if episode.open)

    def members(self, incident: int) -> tuple[Episode, ...]:
        """The open alarms of an incident, first mover first."""
        mine = (e for e in self.episodes.values() if e.incident == incident and is_alarm(e.state))
        return tuple(sorted(mine, key=onset))


def onset(episode: Episode) -> tuple[int, int]:
    """Where the condition began by the detector's estimate, then where it was first found: the order of a cascade."""
    since = episode.finding.since_step
    return (episode.opened_step if since is None else min(since, episode.opened_step), episode.opened_index)


@dataclass(frozen=True, slots=True)
class Transition:
    """One change of an alert: ``from_state`` and ``to_state`` are ``ok``, a severity or ``resolved``; ``reason`` is a key of
    ``lifecycle.REASONS``.

    ``uid`` is what receivers deduplicate by, ``alert`` the episode's uid, ``severity`` the highest it reached so far. ``finding`` is what raised
    it or, for a closing, what it was about. ``incident`` is the uid of its incident, the ``incident_number``-th of the run, or empty and 0.
    ``alarms`` says whether people are told by
    default: an alarm begins or rises unless ``held_by`` explains it, or one that was told ends. ``late``: the row arrived long after it was logged.
    """

    uid: str
    alert: str
    detector: str
    organ: str
    severity: str
    from_state: str
    to_state: str
    reason: str
    step: int
    index: int
    opened_step: int
    finding: Finding
    incident: str = ""
    incident_number: int = 0
    held_by: str = ""
    alarms: bool = False
    late: bool = False


def dump(book: Book) -> dict[str, Any]:
    """The book as JSON values; non-finite numbers are spelled as in :mod:`monitor.wire`."""
    tree: dict[str, Any] = wire.spelled(book)
    return tree


def load(tree: Mapping[str, Any]) -> Book:
    """The inverse of :func:`dump`."""
    episodes = {detector: Episode(**{**each, "finding": load_finding(each["finding"])}) for detector, each in tree["episodes"].items()}
    return Book(**{**tree, "episodes": episodes})


def load_finding(tree: Mapping[str, Any]) -> Finding:
    """A finding from the JSON values that :func:`monitor.wire.spelled` makes of it.

    Written by another version it may lack fields, which become empty, or hold more, which are dropped.
    """
    known = {name: tree.get(name, blank) for name, blank in _BLANK.items()}
    for name in ("value", "baseline", "limit"):
        known[name] = wire.read_number(known[name])
    known["moved"] = tuple(known["moved"])
    return Finding(**known)


_BLANK: dict[str, Any] = dataclasses.asdict(Finding("", "information", 0, "", "", "", "", "", math.nan))
