"""Rows in, judgement out: the detectors' fold and the life of the alerts, stored together as one JSON state. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from monitor import wire
from monitor.alerts import lifecycle, verdict
from monitor.alerts.book import PRESENCE
from monitor.detect import fold
from monitor.detect.contract import Context, Finding, Row

AUXILIARY = "reward.aux.mean"
"""Watched whatever a run declares: a bonus that is switched on later is in this sum and in no declaration."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a stretch of rows came to. ``state`` goes back in with the next stretch; ``book`` is the one inside it."""

    state: Mapping[str, Any]
    book: lifecycle.Book
    transitions: tuple[lifecycle.Transition, ...]
    verdict: verdict.Verdict


@dataclass(frozen=True, slots=True)
class Regime:
    """A deliberate change of the run between two rows: baselines start anew."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """From here on rows arrive long after they were logged (``late``), or do so no longer."""

    late: bool


def judge(run: str, state: Mapping[str, Any], items: Iterable[Row | Regime | Arrival], context: Context) -> Judgement:
    """Judges rows of a run after all that ``state`` remembers; an empty state is that of a run before its first row."""
    detectors = state["detect"] if state else fold.initial()
    book = lifecycle.load(state["book"]) if state else lifecycle.Book(run)
    transitions: list[lifecycle.Transition] = []
    for item in items:
        if isinstance(item, Regime):
            detectors = fold.new_regime(detectors)
            continue
        if isinstance(item, Arrival):
            book = dataclasses.replace(book, late=item.late)
            continue
        detectors, findings = fold.observe(detectors, item, context)
        book, changes = lifecycle.advance(book, item, findings)
        transitions += changes
    said = verdict.verdict(book, fold.organs(detectors, context))
    return Judgement({"detect": detectors, "book": lifecycle.dump(book)}, book, tuple(transitions), said)


def notice(run: str, state: Mapping[str, Any], finding: Finding | None, context: Context) -> Judgement:
    """What no row says: a silence or a crash, which takes the place of any earlier one; None: the run ended well, and they are over."""
    detectors = state["detect"] if state else fold.initial()
    book = lifecycle.load(state["book"]) if state else lifecycle.Book(run)
    here = Row(detectors["rows"], detectors["steps"][-1] if detectors["steps"] else 0, {})
    others = [name for name in PRESENCE if finding is None or name != finding.detector]
    book, transitions = lifecycle.close(book, here, others, "ended" if finding is None else "replaced")
    if finding is not None:
        book, raised = lifecycle.advance(book, here, [finding])
        transitions += raised
    said = verdict.verdict(book, fold.organs(detectors, context))
    return Judgement({"detect": detectors, "book": lifecycle.dump(book)}, book, tuple(transitions), said)


def close(run: str, state: Mapping[str, Any], incident: int, context: Context) -> Judgement:
    """A person closes an incident: its open episodes, however mild by now."""
    book = lifecycle.load(state["book"]) if state else lifecycle.Book(run)
    detectors = state["detect"] if state else fold.initial()
    here = Row(detectors["rows"], detectors["steps"][-1] if detectors["steps"] else 0, {})
    mine = [name for name, episode in book.episodes.items() if episode.incident == incident]
    book, transitions = lifecycle.close(book, here, mine, "by hand")
    said = verdict.verdict(book, fold.organs(detectors, context))
    return Judgement({**state, "detect": detectors, "book": lifecycle.dump(book)}, book, tuple(transitions), said)


def context(
    *,
    algorithm: str | None = None,
    signal: str = "reward",
    task: str | None = None,
    aux: Iterable[str] = (),
    config: Mapping[str, Any] | None = None,
    limits: Mapping[str, Mapping[str, float]] | None = None,
    framework: str | None = None,
) -> Context:
    """The context of a run as declared; what it does not declare has the catalogue's names. The sum of
    the auxiliary rewards is always among them."""
    declared: dict[str, Any] = {"algorithm": algorithm, "signal": signal, "config": config or {}, "limits": limits or {}, "framework": framework}
    if task:
        declared["task"] = task
    declared["aux"] = tuple(dict.fromkeys((*aux, AUXILIARY)))
    return Context(**declared)


def dump_verdict(said: verdict.Verdict) -> dict[str, Any]:
    """A verdict as JSON values."""
    tree: dict[str, Any] = wire.spelled(dataclasses.asdict(said))
    return tree
