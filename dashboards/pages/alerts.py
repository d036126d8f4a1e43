"""``/alerts?view=single``: alert by alert what was raised, on which run, why, what to do, who was told and whether it arrived."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qsl, urlencode

from dash import Dash, Input, Output, State, dcc, html

from dashboards.charts import TITLES
from dashboards.pages import House, Query, callback, no_run
from dashboards.verdict import facts, onset, title_of
from dashboards.words import SEVERITIES, empty, moment, pill
from monitor.detect.words import counted
from monitor.store import queries
from monitor.store.queries import AlertView, Told

SHOWN = (("open", "Open"), ("resolved", "Resolved"), ("", "All"))
EXPLAINS = " explains it"
ARRIVED = {"sent": "arrived", "pending": "on its way", "refused": "did not arrive"}


async def view(house: House, parts: list[str], query: Query) -> Any:
    """The frame and the list for the filters in the address."""
    async with house.engine.connect() as conn:
        stamp = await queries.alert_stamp(conn)
    return html.Div(
        [
            html.Div(
                [
                    html.Div([html.H1("Alerts"), dcc.Link("Incident by incident", href=f"{house.base}alerts", className="small")]),
                    html.P("Every episode, newest first, with its evidence and who was told.", className="dim"),
                ],
                className="head",
            ),
            html.Div(await _list(house, query), id="alert-list"),
            dcc.Store(id="alert-stamp"),
        ],
        className="view",
        **{"data-page": "alerts", "data-stamp": stamp, "data-hears": "alert-stamp"},
    )


def register(app: Dash, house: House) -> None:
    """The list is read again when an alert or a delivery changed."""

    @callback(app, Output("alert-list", "children"), Input("alert-stamp", "data"), State("url", "search"), prevent_initial_call=True)
    async def changed(stamp: Any, search: str | None) -> Any:
        return await _list(house, dict(parse_qsl((search or "").lstrip("?"))))


async def _list(house: House, query: Query) -> list[Any]:
    state, severity, words, run = query.get("state", "open"), query.get("severity", ""), query.get("q", ""), query.get("run")
    async with house.engine.connect() as conn:
        if run and not await queries.find_runs(conn, [run]):
            return [no_run(house, run)]
        found = await queries.alerts(conn, run_uid=run, state=state, severity=severity, words=words)
    filters = html.Div(
        [
            _chips(query, "state", SHOWN, state),
            _chips(query, "severity", (("", "Any severity"), ("critical", "Critical"), ("warning", "Warning")), severity),
        ],
        className="filters",
    )
    if not found:
        return [filters, _nothing(state)]
    return [filters, html.Div([_alert(house, alert, cause) for alert, cause in in_order(found)], className="alerts")]


def in_order(alerts: Sequence[AlertView]) -> list[tuple[AlertView, AlertView | None]]:
    """Alerts as they came, but what another one explains right after that one, and with it."""
    causes = {alert.id: _cause(alert, alerts) for alert in alerts}
    told: list[tuple[AlertView, AlertView | None]] = []

    def tell(alert: AlertView, cause: AlertView | None) -> None:
        told.append((alert, cause))
        for held in alerts:
            if causes[held.id] is alert:
                tell(held, alert)

    for alert in alerts:
        if causes[alert.id] is None:
            tell(alert, None)
    return told


def _cause(alert: AlertView, among: Sequence[AlertView]) -> AlertView | None:
    """The alert of the same run that explains this one, so that nobody was told of it."""
    name = _held(alert).removesuffix(EXPLAINS)
    earlier = [other for other in among if other.run == alert.run and other.detector == name and other.id < alert.id]
    return max(earlier, key=lambda other: other.id) if earlier else None


def _held(alert: AlertView) -> str:
    """Why nobody was told; empty where somebody was, or where no reason was kept."""
    return "" if alert.told else next((change.muted for change in reversed(alert.changes) if change.muted), "")


def _nothing(state: str) -> Any:
    if state == "open":
        return empty("Nothing is wrong", html.P("No alert is open. Warnings and critical findings of every run appear here as they are raised."))
    return empty("No alert matches", html.P("Choose other filters above."))


def _chips(query: Query, key: str, choices: Sequence[tuple[str, str]], chosen: str) -> Any:
    links = [
        dcc.Link(label, href="?" + urlencode({**query, key: value}), className="chip")
        if value != chosen
        else html.Span(label, className="chip chosen", **{"aria-current": "true"})
        for value, label in choices
    ]
    return html.Div(links, className="chips", role="group", **{"aria-label": key.capitalize()})


def _alert(house: House, alert: AlertView, cause: AlertView | None) -> Any:
    """One alert; where ``cause`` explains it, a quiet line that opens."""
    finding = alert.finding
    span = f"step {onset(alert):,} to " + ("now" if alert.open else f"{alert.resolved_step:,}" if alert.resolved_step is not None else "its end")
    where = [
        dcc.Link(alert.run_name, href=f"{house.run(alert.run)}#organ-{alert.organ}"),
        html.Span(alert.project),
        *([html.A("incident", href=house.incident(alert.incident))] if alert.incident is not None else []),
        html.Span(TITLES.get(alert.organ, alert.organ)),
        html.Span(alert.detector, className="mono"),
        html.Span(span),
        moment(alert.opened_at, age=True),
    ]
    head = [
        pill(alert.severity),
        html.H2(title_of(alert)),
        *([] if alert.open else [html.Span(SEVERITIES.get(alert.state, alert.state), className="state")]),
    ]
    body = [html.Div(where, className="facts-line dim"), facts(finding), _told(alert, cause)]
    if cause is not None:
        body = [
            html.Details([html.Summary([*head, html.Span(f"since step {onset(alert):,}, explained by the alert above", className="dim")]), *body])
        ]
    else:
        body.insert(0, html.Header(head))
    edge = "held" if cause is not None else f"edge-{alert.severity if alert.open else 'resolved'}"
    return html.Article(body, className=f"card alert {edge}", id=f"alert-{alert.id}")


def _told(alert: AlertView, cause: AlertView | None) -> Any:
    history = [
        html.Li(
            [
                html.Span(f"step {change.step:,}", className="num"),
                f" {change.from_state} → {change.to_state}",
                html.Span(f" {change.reason}", className="dim"),
            ]
        )
        for change in alert.changes
    ]
    lines: list[Any] = (
        [html.Div([html.Span("Told", className="dim"), *(_delivery(told) for told in alert.told)], className="told")] if alert.told else []
    )
    if not alert.told:
        why: Any = f"{_held(alert) or 'no channel takes it'}."
        if cause is not None:
            why = [html.A(title_of(cause), href=f"#alert-{cause.id}"), f"{EXPLAINS}."]
        lines.append(html.Div(html.Span(["Nobody was told: ", *why], className="dim"), className="told"))
    if history:
        lines.append(html.Details([html.Summary(f"History ({len(history)})"), html.Ol(history, className="history")]))
    return html.Div(lines, className="after")


def _delivery(told: Told) -> Any:
    arrived = ARRIVED.get(told.state, told.state) if told.state != "pending" or not told.attempts else "has not arrived yet, will be tried again"
    what = f"{SEVERITIES.get(told.to_state, told.to_state).lower()} at step {told.step:,}"
    parts: list[Any] = [html.Span(className="icon", **{"aria-hidden": "true"}), html.B(told.channel), f" {arrived}: {what} "]
    if told.sent_at is not None and told.state == "sent":
        parts.append(html.Span([moment(told.sent_at, age=True)], className="dim"))
    if told.error and told.state != "sent":
        parts.append(html.Span(f"({told.error})", className="dim"))
    return html.Span(parts, className=f"delivery delivery-{told.state}", title=counted(told.attempts, "attempt"))
