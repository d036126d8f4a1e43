"""The life of an alert: ok -> watch -> warning -> critical -> resolved, as a pure fold over what the detectors find.

A :class:`Book` holds, per detector, the latest episode. An episode opens with the first finding, its severity only rises, and it closes after
:data:`QUIET_ROWS` rows that held the detector's metric and no finding. Every change is a :class:`Transition` with a named reason.

- *Nothing fires twice.* An open episode absorbs further findings. After a resume, steps that the book had already seen to the end of an
  episode are lived again: a finding there is not news unless it is more severe than before.
- *Flapping is damped.* An episode that returns soon after it closed is reopened, not replaced, and each reopening doubles the quiet it needs.
- *Identity is stable.* The uids are name-based UUIDs (RFC 9562, version 5) of run, detector, episode and change: whoever judges the same rows
  again, after a crash or elsewhere, gets the same ones.
"""

from __future__ import annotations

import dataclasses
import math
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from monitor import metrics, wire
from monitor.detect.contract import SEVERITIES, Finding, Row
from monitor.detect.registry import DETECTOR_BY_ID

QUIET_ROWS = 10
"""Rows with the detector's metric and without a finding after which an episode closes."""

REOPEN_ROWS = 40
"""A finding at most so many rows after an episode closed reopens it."""

MOST_QUIET_ROWS = 160
"""Where the doubling of the needed quiet ends."""

ALARMS = ("warning", "critical")
REASONS = {
    "opened": "the condition holds for the first time",
    "rose": "the condition became more severe",
    "reopened": "the condition returned soon after it had gone",
    "quiet": "the condition has not held for long enough",
}

_NAMESPACE = uuid.UUID("6e0f5a4e-58a4-5d3c-9b8a-0d4d8c3b7a11")


def rank(severity: str) -> int:
    """The place of a severity in rising order; states without one (``ok``, ``resolved``) come below all."""
    return SEVERITIES.index(severity) if severity in SEVERITIES else -1


def is_alarm(severity: str) -> bool:
    return severity in ALARMS


def organ_of(finding: Finding) -> str:
    """The part of the run that a finding is about: its detector's, or its metric's where no such detector is registered."""
    detector = DETECTOR_BY_ID.get(finding.detector)
    return metrics.describe(finding.metric).organ if detector is None else detector.organ


@dataclass(frozen=True, slots=True)
class Episode:
    """One episode of one detector. ``state`` is a severity while it is open, then ``resolved`` (after an alarm) or ``ok``.

    ``severity`` is the highest it reached, ``finding`` the one that reached it. ``alarm_step`` is where it first was an alarm. Steps are the
    run's, indices its rows. ``changes`` counts the transitions so far, ``quiet`` the quiet rows since the last finding.
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
    closed_step: int | None = None
    closed_index: int | None = None
    quiet: int = 0
    reopened: int = 0
    changes: int = 0

    @property
    def open(self) -> bool:
        return self.state in SEVERITIES

    @property
    def needed_quiet(self) -> int:
        return min(QUIET_ROWS << self.reopened, MOST_QUIET_ROWS)


@dataclass(frozen=True, slots=True)
class Book:
    """The alerts of one run: the latest episode of each detector, in the order in which the detectors first spoke."""

    run: str
    episodes: Mapping[str, Episode] = field(default_factory=dict)

    @property
    def open(self) -> tuple[Episode, ...]:
        return tuple(episode for episode in self.episodes.values() if episode.open)


@dataclass(frozen=True, slots=True)
class Transition:
    """One change of an alert: ``from_state`` and ``to_state`` are ``ok``, a severity or ``resolved``; ``reason`` is a key of :data:`REASONS`.

    ``uid`` is what receivers deduplicate by, ``alert`` the episode's uid, ``severity`` the highest it reached so far. ``finding`` is what raised
    it or, for a closing, what it was about.
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

    @property
    def alarms(self) -> bool:
        """Whether people are told by default: an alarm begins or rises, or one ends."""
        return is_alarm(self.to_state) or (self.to_state == "resolved" and is_alarm(self.from_state))


def advance(book: Book, row: Row, findings: Iterable[Finding]) -> tuple[Book, list[Transition]]:
    """The book after one row and what changed. Of several findings by one detector the most severe counts."""
    worst: dict[str, Finding] = {}
    for finding in findings:
        known = worst.get(finding.detector)
        if known is None or rank(finding.severity) > rank(known.severity):
            worst[finding.detector] = finding
    if not worst and not any(episode.open for episode in book.episodes.values()):
        return book, []
    episodes = dict(book.episodes)
    transitions: list[Transition] = []
    for detector in dict.fromkeys((*episodes, *worst)):
        before, found = episodes.get(detector), worst.get(detector)
        after, reason = _quieter(before, row) if found is None else _louder(book.run, before, row, found)
        if after is None:
            continue
        if reason is not None:
            after = dataclasses.replace(after, changes=after.changes + 1)
            transitions.append(_transition(before, after, reason, row))
        episodes[detector] = after
    return Book(book.run, episodes), transitions


def _louder(run: str, before: Episode | None, row: Row, finding: Finding) -> tuple[Episode | None, str | None]:
    """The detector's condition holds on this row."""
    if before is None or (not before.open and not _returns(before, row) and not _relived(before, finding)):
        return _opened(run, 1 if before is None else before.number + 1, row, finding), "opened"
    rises = rank(finding.severity) > rank(before.state if before.open else before.severity)
    seen = dataclasses.replace(before, last_step=finding.step, last_index=row.index)
    if before.open:
        # Information beside an open alarm ("solved", a single spike) is not the condition that the alarm is about.
        if is_alarm(before.state) and finding.severity == "information":
            return _quieter(before, row)
        seen = dataclasses.replace(seen, quiet=0)
        return (_at(seen, finding), "rose") if rises else (seen, None)
    if _relived(before, finding) and not rises:
        return before, None
    reopened = dataclasses.replace(seen, quiet=0, reopened=before.reopened + 1, closed_step=None, closed_index=None)
    return _at(reopened, finding), "reopened"


def _quieter(before: Episode | None, row: Row) -> tuple[Episode | None, str | None]:
    """The condition does not hold on this row; only rows that hold the detector's metric can say so."""
    if before is None or not before.open or before.finding.metric not in row.values:
        return before, None
    quiet = before.quiet + 1
    if quiet < before.needed_quiet:
        return dataclasses.replace(before, quiet=quiet), None
    state = "resolved" if is_alarm(before.state) else "ok"
    return dataclasses.replace(before, state=state, quiet=0, closed_step=row.step, closed_index=row.index), "quiet"


def _returns(closed: Episode, row: Row) -> bool:
    return closed.closed_index is not None and row.index - closed.closed_index <= REOPEN_ROWS


def _relived(closed: Episode, finding: Finding) -> bool:
    return closed.closed_step is not None and finding.step <= closed.closed_step


def _opened(run: str, number: int, row: Row, finding: Finding) -> Episode:
    uid = str(uuid.uuid5(_NAMESPACE, f"{run}\n{finding.detector}\n{number}"))
    blank = Episode(number, uid, "ok", "information", finding, finding.step, row.index, finding.step, row.index)
    return _at(blank, finding)


def _at(episode: Episode, finding: Finding) -> Episode:
    """The episode open at the severity of ``finding``."""
    rises = rank(finding.severity) >= rank(episode.severity)
    alarm_step = finding.step if episode.alarm_step is None and is_alarm(finding.severity) else episode.alarm_step
    severity = finding.severity if rises else episode.severity
    return dataclasses.replace(episode, state=finding.severity, severity=severity, finding=finding, alarm_step=alarm_step)


def _transition(before: Episode | None, after: Episode, reason: str, row: Row) -> Transition:
    return Transition(
        uid=str(uuid.uuid5(uuid.UUID(after.uid), str(after.changes))),
        alert=after.uid,
        detector=after.finding.detector,
        organ=organ_of(after.finding),
        severity=after.severity,
        from_state="ok" if before is None or reason == "opened" else before.state,
        to_state=after.state,
        reason=reason,
        step=row.step,
        index=row.index,
        opened_step=after.opened_step,
        finding=after.finding,
    )


def dump(book: Book) -> dict[str, Any]:
    """The book as JSON values; non-finite numbers are spelled as in :mod:`monitor.wire`."""
    tree: dict[str, Any] = wire.spelled(book)
    return tree


def load(tree: Mapping[str, Any]) -> Book:
    """The inverse of :func:`dump`."""
    return Book(tree["run"], {detector: _episode(each) for detector, each in tree["episodes"].items()})


def _episode(tree: Mapping[str, Any]) -> Episode:
    return Episode(**{**tree, "finding": load_finding(tree["finding"])})


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
