"""An incident as a timeline: the first mover on top, then the rest as it began, quieter where it follows from another, each with its evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dash import html

from dashboards.charts import TITLES
from dashboards.verdict import facts, onset, title_of
from dashboards.words import pill
from monitor.alerts.lifecycle import REASONS
from monitor.store.queries import AlertView, Change


@dataclass(frozen=True, slots=True)
class Place:
    """A row of the timeline. ``cause`` is the alert that explains this one."""

    alert: AlertView
    cause: AlertView | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """The steps that the timeline shows."""

    first: int
    last: int

    def percent(self, step: int) -> float:
        return round(100 * min(1.0, max(0.0, (step - self.first) / max(1, self.last - self.first))), 2)

    def ticks(self, most: int = 5) -> list[int]:
        """Round steps inside the span."""
        wide = max(1, self.last - self.first)
        size = next(size for power in range(20) for size in (10**power, 2 * 10**power, 5 * 10**power) if wide / size <= most)
        return list(range(-(-self.first // size) * size, self.last + 1, size))


def arranged(alerts: Sequence[AlertView]) -> list[Place]:
    """Every alert once: the first mover, which nothing explains, then the others in the order in which they began."""
    left = sorted(alerts, key=lambda alert: (onset(alert), alert.id))
    speakers: dict[str, AlertView] = {}
    for alert in left:
        speakers.setdefault(alert.detector, alert)
    causes = {alert.id: speakers[alert.held_by] for alert in left if alert.held_by in speakers and speakers[alert.held_by] is not alert}
    found: list[Place] = []

    def place(alert: AlertView, cause: AlertView | None) -> None:
        if alert in left:
            left.remove(alert)
            found.append(Place(alert, cause))
            for effect in [each for each in left if causes.get(each.id) is alert]:
                place(effect, alert)

    for alert in [each for each in left if each.id not in causes]:
        place(alert, None)
    while left:
        place(left[0], None)
    return found[:1] + sorted(found[1:], key=lambda place: (onset(place.alert), place.alert.opened_step, place.alert.id))


def span(alerts: Sequence[AlertView], newest: int | None) -> Span:
    """From a little before the first onset to the end of the last alert; an open one lasts to ``newest``, the run's last step."""
    first = min(onset(alert) for alert in alerts)
    ends = [newest if alert.open and newest is not None else alert.resolved_step or alert.last_step for alert in alerts]
    last = max(first + 1, *ends, *(alert.opened_step for alert in alerts))
    before = max(1, (last - first) // 6)
    return Span(max(0, first - before), last)


def timeline(alerts: Sequence[AlertView], newest: int | None) -> list[Any]:
    """The rows and the axis below them; the row of the first mover is open."""
    shown = span(alerts, newest)
    places = arranged(alerts)
    rows = [_row(place, shown, places[0].alert) for place in places]
    ticks = [html.Span(f"{step:,}", style={"left": f"{shown.percent(step)}%"}) for step in shown.ticks()]
    return [*rows, html.Div([html.Span("step"), html.Span(ticks, className="ticks")], className="axis", **{"aria-hidden": "true"})]


def _row(place: Place, shown: Span, first: AlertView) -> Any:
    alert = place.alert
    began, raised = onset(alert), alert.opened_step
    end = shown.last if alert.open else alert.resolved_step or alert.last_step
    bar = html.Span(className="bar", style={"left": f"{min(99.0, shown.percent(began))}%", "right": f"{100 - shown.percent(end)}%"})
    tick = html.Span(className="raised", style={"left": f"{min(99.5, shown.percent(raised))}%"})
    summary = html.Summary(
        [
            pill(alert.severity),
            html.Span([html.B(title_of(alert)), html.Span(_why(place, first), className="dim")], className="what"),
            html.Span([bar, tick], className="track", **{"aria-hidden": "true"}),
            html.Span(_when(alert), className="when"),
        ],
    )
    body = [facts(alert.finding, folded=False), _changes(alert.changes)]
    tone = alert.severity if alert.open else "over"
    return html.Details(
        [summary, html.Div(body, className="more-of-it")],
        open=alert is first,
        id=f"alert-{alert.id}",
        className=f"link tone-{tone}{' held' if place.cause else ''}",
        **{"data-stop": ""},
    )


def _why(place: Place, first: AlertView) -> str:
    organ = TITLES.get(place.alert.organ, place.alert.organ)
    if place.cause is None:
        return organ
    return f"{organ}, held: follows from {'the first mover' if place.cause is first else f'“{title_of(place.cause)}”'}"


def _when(alert: AlertView) -> list[Any]:
    over = [] if alert.open else [html.Span(f"over at {alert.resolved_step:,}" if alert.resolved_step is not None else "over", className="over")]
    return ["step ", html.B(f"{onset(alert):,}"), *over]


def _changes(changes: Sequence[Change]) -> Any:
    return html.Ol([html.Li(_change(change)) for change in changes], className="history")


def _change(change: Change) -> list[Any]:
    muted = f"; nobody was told: {change.muted}" if change.muted else ""
    asked = f". {change.acted}" if change.acted else ""
    reason = REASONS.get(change.reason, change.reason)
    return [
        html.Span(f"step {change.step:,}", className="num"),
        f" {change.from_state} → {change.to_state} ",
        html.Span(f"{reason}{muted}{asked}", className="dim"),
    ]
