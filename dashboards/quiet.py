"""When the silence of a run says nothing: because it was announced, or because nobody was looking."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from dash import html

from dashboards.words import moment
from monitor.detect.words import counted
from monitor.store import presence, queries, series
from monitor.store.presence import Announced, Blind
from monitor.store.queries import Connection, EventView, RunView

LATELY = timedelta(days=1)
"""For so long the head of a run speaks of a spell in which we were down."""


@dataclass(frozen=True, slots=True)
class Past:
    """What happened to a run: its ``events``, among them the ``spells`` in which we were down, and the silence that it has announced now."""

    events: tuple[EventView, ...] = ()
    spells: tuple[Blind, ...] = ()
    announced: Announced | None = None


async def read(conn: Connection, run: RunView) -> Past:
    """Everything that was stored of it; a spell stands at the step at which it began."""
    events = await queries.events(conn, run.id)
    spells = await presence.blind_between(conn, run.created_at, None if run.state == "running" else run.finished_at or run.last_seen_at)
    said = (await presence.announced(conn, run.id))[:1]
    times = [each.timestamp() for spell in spells for each in (spell.from_at, spell.to_at)]
    steps = await series.steps_at(conn, run.id, times, last=run.last_step or 0) if times else []
    blind = [_event(spell, *steps[2 * n : 2 * n + 2]) for n, spell in enumerate(spells)]
    return Past(tuple(sorted([*events, *blind], key=lambda event: event.at)), tuple(spells), said[0] if said else None)


def _event(spell: Blind, first: int | None, last: int | None) -> EventView:
    return EventView(0, 0, first, spell.from_at, "blind", {"component": spell.component, "until": spell.to_at, "end": last})


def told(past: Past, now: datetime | None = None) -> list[Any]:
    """What stands beside the state of the run."""
    parts: list[Any] = []
    if (said := past.announced) is not None:
        until = "its next row" if said.until is None else moment(said.until, near=True)
        parts.append(html.Span(["silence announced until ", until, f" ({said.why})" if said.why else ""], className="state state-quiet"))
    recent = [spell for spell in past.spells if spell.to_at > (now or datetime.now(UTC)) - LATELY]
    if recent:
        newest, more = recent[0], len(recent) - 1
        words = [f"the {newest.component} was down from ", moment(newest.from_at, near=True), " to ", moment(newest.to_at, near=True)]
        also = [f", and {counted(more, 'more time')} in the last day"] if more else []
        parts.append(html.A([*words, *also], href="#events", className="state state-blind", title="Silence then is not held against the run"))
    return parts
