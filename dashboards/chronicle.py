"""What happened to an incident: who was told of it and whether that arrived, and everything that people and detectors did, newest first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dash import html

from dashboards.pages import House
from dashboards.words import moment
from monitor.alerts.lifecycle import REASONS
from monitor.detect.words import counted
from monitor.store.incidents import Note
from monitor.store.queries import AlertView, Change, Told

ARRIVED = {"sent": "arrived", "pending": "on its way", "refused": "did not arrive"}

SAID = {
    "acknowledge": "acknowledged it",
    "release": "took the acknowledgement back",
    "resolve": "closed it",
    "comment": "wrote",
    "mark": "called it",
}
"""What the author of a note did."""


def told(house: House, alerts: Sequence[AlertView]) -> list[Any]:
    """One line per message and receiver."""
    sent = [(alert, each) for alert in alerts for each in alert.told]
    head = html.H2("Who was told")
    if not sent:
        why = next((change.muted for alert in alerts for change in alert.changes if change.muted), "no channel takes it")
        return [head, html.P(f"Nobody: {why}.", className="dim")]
    held = sum(bool(alert.held_by) for alert in alerts)
    parts: list[Any] = [head, html.Ul([html.Li(_message(alert, each)) for alert, each in sent], className="messages")]
    if held:
        parts.append(html.P(f"Of {counted(held, 'more alert')} nobody was told: another explains {'it' if held == 1 else 'them'}.", className="dim"))
    parts.append(html.P(html.A("Every attempt", href=f"{house.base}deliveries?incident={alerts[0].incident}")))
    return parts


def _message(alert: AlertView, each: Told) -> list[Any]:
    state = "failed" if each.state == "pending" and each.attempts else each.state
    word = "has not arrived yet, will be tried again" if state == "failed" else ARRIVED.get(each.state, each.state)
    parts: list[Any] = [
        html.Span([html.Span(className="icon", **{"aria-hidden": "true"}), html.B(each.channel), f" {word}"], className=f"delivery delivery-{state}"),
        *([" ", moment(each.sent_at, age=True)] if each.sent_at is not None and each.state == "sent" else []),
        html.Div(f"{each.to_state} at step {each.step:,}: {alert.finding.get('title') or alert.detector}", className="dim"),
    ]
    if each.error and each.state != "sent":
        parts.append(html.Div(f"{counted(each.attempts, 'attempt')}, last: {each.error}", className="dim"))
    return parts


def log(alerts: Sequence[AlertView], notes: Sequence[Note]) -> list[Any]:
    """Changes of alerts and what people said, newest first."""
    entries = [(change.at, number, _changed(alert, change)) for number, (alert, change) in enumerate((a, c) for a in alerts for c in a.changes)]
    entries += [(note.at, number, _said(note)) for number, note in enumerate(notes)]
    ordered = sorted(entries, key=lambda entry: entry[:2], reverse=True)
    return [html.H2("History"), html.Ol([entry[2] for entry in ordered], className="log")]


def _changed(alert: AlertView, change: Change) -> Any:
    state = change.to_state
    word = {"ok": "Gone", "resolved": "Over"}.get(state, state.capitalize())
    why = REASONS.get(change.reason, change.reason) + (f"; nobody was told: {change.muted}" if change.muted else "")
    asked = [html.P(change.acted)] if change.acted else []
    return html.Li(
        [
            html.Div([html.B(word), f": {alert.finding.get('title') or alert.detector}"]),
            *asked,
            html.Div([f"step {change.step:,}, {why}. ", moment(change.at)], className="dim"),
        ],
        className=f"entry tone-{state}{' held' if change.muted else ''}",
    )


def _said(note: Note) -> Any:
    words: list[Any] = [html.P(note.text)] if note.text else []
    return html.Li(
        [html.Div([html.B(note.author), f" {SAID.get(note.kind, note.kind)} ", moment(note.at, age=True)]), *words], className="entry said"
    )
