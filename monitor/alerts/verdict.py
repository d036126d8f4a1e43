"""What a person is told about a run: one word and one sentence, for the whole and for each organ, with reasons."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from monitor.alerts.book import Book, Episode, is_alarm, onset, organ_of, rank
from monitor.alerts.incident import roots
from monitor.detect.contract import OrganView
from monitor.detect.words import lower

STATES = ("healthy", "solved", "cannot judge", "watch", "warning", "critical")
"""From good to bad. ``solved``: nothing is left to learn from these prompts; ``cannot judge``: the inputs are missing."""


@dataclass(frozen=True, slots=True)
class OrganVerdict:
    """``since_step`` is where the leading alert's condition began by its detector's estimate; None without an alert."""

    state: str
    sentence: str
    reasons: tuple[str, ...] = ()
    since_step: int | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """``state`` is one of :data:`STATES`; ``organs`` holds every organ that has detectors, in the catalogue's order."""

    state: str
    sentence: str
    reasons: tuple[str, ...] = ()
    since_step: int | None = None
    organs: Mapping[str, OrganVerdict] = field(default_factory=dict)


NOT_JUDGED = Verdict("cannot judge", "No row has arrived yet.")


def verdict(book: Book, organs: Mapping[str, OrganView]) -> Verdict:
    """The verdict of a run from its alerts and from how its organs look without them (``monitor.detect.fold.organs``).

    Where several alerts are open, the most severe speaks; among those one that none of the others causes, and of several the one that
    began first. The others are its reasons.
    """
    open_ = [episode for episode in book.open if episode.state != "information"]
    mentioned = [episode for episode in book.open if episode.state == "information"]
    parts = {name: _organ(view, [e for e in open_ if organ_of(e.finding) == name], mentioned, name) for name, view in organs.items()}
    if open_:
        leading = _leading(open_)
        return Verdict(leading.state, _sentence(leading), _reasons(open_, leading), onset(leading)[0], parts)
    return _calm(parts)


def _calm(parts: Mapping[str, OrganVerdict]) -> Verdict:
    """The verdict of a run without any open alert."""
    solved = [part for part in parts.values() if part.state == "solved"]
    if solved:
        return Verdict("solved", solved[0].sentence, solved[0].reasons, organs=parts)
    blind = [name for name, part in parts.items() if part.state == "cannot judge"]
    if len(blind) == len(parts):
        return Verdict("cannot judge", "Nothing that a verdict could rest on has been logged.", organs=parts)
    why = lower(parts[blind[0]].sentence) if len(blind) == 1 else "what judging them needs has not been logged."
    reasons = (f"{_listed(blind)} cannot be judged: {why}",) if blind else ()
    judged = [name for name in parts if name not in blind]
    return Verdict("healthy", f"Nothing is wrong with {_listed(judged)}.", reasons, organs=parts)


def _organ(view: OrganView, open_: list[Episode], mentioned: Iterable[Episode], name: str) -> OrganVerdict:
    if open_:
        leading = _leading(open_)
        return OrganVerdict(leading.state, _sentence(leading), (*_reasons(open_, leading), *view.reasons), onset(leading)[0])
    notes = tuple(_sentence(episode) for episode in mentioned if organ_of(episode.finding) == name)
    return OrganVerdict(view.state, view.sentence, (*notes, *view.reasons))


def _leading(open_: Collection[Episode]) -> Episode:
    worst = max(rank(episode.state) for episode in open_)
    return min(roots([e for e in open_ if rank(e.state) == worst]), key=lambda episode: (*onset(episode), episode.number))


def _reasons(open_: list[Episode], leading: Episode) -> tuple[str, ...]:
    """What the leading alert rests on, then the other alerts in the order in which they began."""
    others = sorted((e for e in open_ if e is not leading), key=onset)
    return (leading.finding.evidence, *(f"{e.state} since step {onset(e)[0]}: {lower(e.finding.title)}" for e in others))


def _sentence(episode: Episode) -> str:
    title = episode.finding.title.rstrip(".")
    return f"{title}, since step {onset(episode)[0]}." if is_alarm(episode.state) or episode.state == "watch" else f"{title}."


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
