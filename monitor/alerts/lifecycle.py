"""The life of an alert: ok -> watch -> warning -> critical -> resolved, as a pure fold over what the detectors find.

A book holds, per detector, the latest episode. An episode opens with the first finding, its severity only rises, and it closes after
:data:`QUIET_ROWS` rows that held the detector's metric and no finding. Every change is a transition with a named reason.

- *Nothing fires twice.* An open episode absorbs further findings. After a resume, steps that the book had already seen to the end of an
  episode are lived again: a finding there is not news unless it is more severe than before.
- *Flapping is damped.* An episode that returns soon after it closed is reopened, not replaced, and each reopening doubles the quiet it needs.
- *Identity is stable.* Uids are made from run, detector, episode and change: whoever judges the same rows again, after a crash or elsewhere,
  gets the same ones.
- *Symptoms are held* while the alarm that explains them is open (:mod:`monitor.alerts.incident`).
- *Old news is held*: what rows show that arrive long after they were logged is stored, and told only if it still holds when they catch up.
- *A story ends with its damage.* While a run is ruined, the quiet of the incident's other alarms is counted and ends nothing.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Collection, Iterable

from monitor.alerts.book import (
    ALARMS,
    LATE,
    MOST_QUIET_ROWS,
    PRESENCE,
    QUIET_ROWS,
    Book,
    Episode,
    Transition,
    dump,
    is_alarm,
    load,
    load_finding,
    name_uid,
    organ_of,
    rank,
)
from monitor.alerts.incident import holder, joined, lasts
from monitor.detect.contract import Finding, Row

__all__ = [
    "ALARMS",
    "MOST_QUIET_ROWS",
    "QUIET_ROWS",
    "REASONS",
    "REOPEN_ROWS",
    "Book",
    "Episode",
    "Transition",
    "advance",
    "close",
    "dump",
    "is_alarm",
    "load",
    "load_finding",
    "organ_of",
    "rank",
]

REOPEN_ROWS = 40
"""A finding at most so many rows after an episode closed reopens it."""

REASONS = {
    "opened": "the condition holds for the first time",
    "rose": "the condition became more severe",
    "reopened": "the condition returned soon after it had gone",
    "outlived": "what explained the condition is over, and the condition is not",
    "caught up": "rows arrive on time again, and the condition holds",
    "quiet": "the condition has not held for long enough",
    "by hand": "a person closed it",
    "replaced": "another alert says more",
    "returned": "rows arrive again",
    "ended": "the run ended",
}

_Change = tuple[Episode | None, Episode, str]
"""An episode before, after, and the reason; an empty reason is no transition."""


def advance(book: Book, row: Row, findings: Iterable[Finding]) -> tuple[Book, list[Transition]]:
    """The book after one row and what changed. Of several findings by one detector the most severe counts."""
    worst: dict[str, Finding] = {}
    for finding in findings:
        known = worst.get(finding.detector)
        if known is None or rank(finding.severity) > rank(known.severity):
            worst[finding.detector] = finding
    if not worst and not any(episode.open or episode.by_hand for episode in book.episodes.values()):
        return book, []
    changes: dict[str, _Change] = {}
    for detector in dict.fromkeys((*book.episodes, *worst)):
        before, found = book.episodes.get(detector), worst.get(detector)
        after, reason = _quieter(book, before, row) if found is None else _louder(book, before, row, found)
        if after is not None:
            changes[detector] = (before, after, reason)
    return _settled(book, row, changes)


def close(book: Book, row: Row, detectors: Collection[str], reason: str) -> tuple[Book, list[Transition]]:
    """The book with the open episodes of ``detectors`` closed for ``reason``, at the place of ``row``.

    Closed by hand, an episode stays closed for as long as its condition goes on; once that was gone for the usual quiet, it may open again.
    """
    changes: dict[str, _Change] = {}
    for detector, episode in book.episodes.items():
        closes = detector in detectors and episode.open
        changes[detector] = (episode, _closed(episode, row, by_hand=reason == "by hand"), reason) if closes else (episode, episode, "")
    return _settled(book, row, changes)


def _settled(book: Book, row: Row, changes: dict[str, _Change]) -> tuple[Book, list[Transition]]:
    """Numbers incidents, holds symptoms, and turns what changed into transitions."""
    book = dataclasses.replace(book, episodes={detector: after for detector, (_, after, _) in changes.items()})
    for detector, (before, after, reason) in changes.items():
        if reason and is_alarm(after.state) and (before is None or not is_alarm(before.state) or reason == "opened"):
            number = after.incident if reason == "reopened" and after.incident else joined(book, row.index)
            placed = dataclasses.replace(after, incident=number, alarm_index=row.index)
            grown = row.index if number >= book.incidents else book.grown_index
            episodes_now = {**book.episodes, detector: placed}
            book = dataclasses.replace(book, episodes=episodes_now, incidents=max(number, book.incidents), grown_index=grown)
    episodes, transitions = dict(book.episodes), []
    for detector, (before, _, reason) in changes.items():
        after = _told(book.episodes[detector], book)
        if not reason and after.held_by == "" and before is not None and before.held_by and is_alarm(after.state):
            reason = "caught up" if before.held_by == LATE else "outlived"
        if reason:
            after = dataclasses.replace(after, changes=after.changes + 1)
            transitions.append(_transition(book, before, after, reason, row))
        episodes[detector] = after
    return dataclasses.replace(book, episodes=episodes), transitions


def _told(episode: Episode, book: Book) -> Episode:
    """The episode with what people hear of it at its present state."""
    if not is_alarm(episode.state):
        return episode if not episode.open else dataclasses.replace(episode, held_by="")
    # What is held and did not hold on this row is on its way out with its cause.
    if rank(episode.told) >= rank(episode.state) or (episode.held_by and episode.quiet):
        return episode
    held_by = LATE if book.late else holder(episode, book.episodes.values())
    return dataclasses.replace(episode, held_by=held_by, told=episode.told if held_by else episode.state)


def _louder(book: Book, before: Episode | None, row: Row, finding: Finding) -> tuple[Episode | None, str]:
    """The detector's condition holds on this row."""
    if before is not None and before.by_hand and rank(finding.severity) <= rank(before.severity):
        return dataclasses.replace(before, last_step=finding.step, last_index=row.index, quiet=0), ""
    if before is None or (not before.open and not _returns(before, row) and not _relived(before, finding)):
        return _opened(book.run, 1 if before is None else before.number + 1, row, finding), "opened"
    rises = rank(finding.severity) > rank(before.state if before.open else before.severity)
    seen = dataclasses.replace(before, last_step=finding.step, last_index=row.index)
    if before.open:
        # Information beside an open alarm ("solved", a single spike) is not the condition that the alarm is about.
        if is_alarm(before.state) and finding.severity == "information":
            return _quieter(book, before, row)
        seen = dataclasses.replace(seen, quiet=0)
        return (_at(seen, finding), "rose") if rises else (seen, "")
    if _relived(before, finding) and not rises:
        return before, ""
    again = before.reopened + 1
    reopened = dataclasses.replace(seen, quiet=0, reopened=again, closed_step=None, closed_index=None, told="", held_by="", by_hand=False)
    return _at(reopened, finding), "reopened"


def _quieter(book: Book, before: Episode | None, row: Row) -> tuple[Episode | None, str]:
    """The condition does not hold on this row; only rows that hold the detector's metric can say so."""
    if before is None or not (before.open or before.by_hand):
        return before, ""
    here = before.finding.detector in PRESENCE
    if not here and before.finding.metric not in row.values:
        return before, ""
    quiet = before.quiet + 1
    if quiet < before.needed_quiet or (not here and lasts(before, book)):
        return dataclasses.replace(before, quiet=quiet), ""
    if before.by_hand:
        return dataclasses.replace(before, by_hand=False, quiet=0, closed_step=row.step, closed_index=row.index), ""
    return _closed(before, row), "returned" if here else "quiet"


def _closed(episode: Episode, row: Row, *, by_hand: bool = False) -> Episode:
    state = "resolved" if is_alarm(episode.state) else "ok"
    return dataclasses.replace(episode, state=state, quiet=0, closed_step=row.step, closed_index=row.index, by_hand=by_hand)


def _returns(closed: Episode, row: Row) -> bool:
    return closed.closed_index is not None and row.index - closed.closed_index <= REOPEN_ROWS


def _relived(closed: Episode, finding: Finding) -> bool:
    return closed.closed_step is not None and finding.step <= closed.closed_step and finding.detector not in PRESENCE


def _opened(run: str, number: int, row: Row, finding: Finding) -> Episode:
    uid = name_uid(run, finding.detector, number)
    return _at(Episode(number, uid, "ok", "information", finding, finding.step, row.index, finding.step, row.index), finding)


def _at(episode: Episode, finding: Finding) -> Episode:
    """The episode open at the severity of ``finding``."""
    rises = rank(finding.severity) >= rank(episode.severity)
    alarm_step = finding.step if episode.alarm_step is None and is_alarm(finding.severity) else episode.alarm_step
    severity = finding.severity if rises else episode.severity
    return dataclasses.replace(episode, state=finding.severity, severity=severity, finding=finding, alarm_step=alarm_step)


def _transition(book: Book, before: Episode | None, after: Episode, reason: str, row: Row) -> Transition:
    raised = is_alarm(after.state) and not after.held_by
    ended = after.state == "resolved" and after.told != ""
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
        incident=name_uid(book.run, "incident", after.incident) if after.incident else "",
        incident_number=after.incident,
        held_by=after.held_by if is_alarm(after.state) else "",
        alarms=raised or ended,
        late=book.late,
    )
