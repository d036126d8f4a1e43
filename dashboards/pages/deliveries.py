"""``/deliveries``: every attempt to tell somebody, with what came of it, and how each receiver is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, urlencode

from dash import Dash, Input, Output, State, dcc, html

from dashboards.pages import House, Query, callback
from dashboards.tables import cards
from dashboards.words import empty, moment
from monitor.store import incidents, queries, receipts
from monitor.store.receipts import Attempt, Lately

PAGE = 100
OUTCOMES = (("", "Every outcome"), ("delivered", "Delivered"), ("failed", "Failed"), ("refused", "Refused"), ("sending", "Under way"))
WORDS = {"delivered": "delivered", "failed": "failed", "refused": "refused", "sending": "under way"}
STATES = {"ok": "takes messages", "resting": "rests after failures", "disabled": "takes nothing"}
HEADS = ("When", "Receiver", "Outcome", "Took", "What", "Run", "Error")


async def view(house: House, parts: list[str], query: Query) -> Any:
    """The frame and the log for the filters in the address."""
    async with house.engine.connect() as conn:
        stamp = await queries.alert_stamp(conn)
    return html.Div(
        [
            html.Div(
                [html.H1("Deliveries"), html.P("Every attempt to tell somebody, newest first, and what came of it.", className="dim")],
                className="head",
            ),
            html.Div(await _log(house, query), id="delivery-log"),
            dcc.Store(id="delivery-stamp"),
        ],
        className="view",
        **{"data-page": "deliveries", "data-stamp": stamp, "data-hears": "delivery-stamp"},
    )


def register(app: Dash, house: House) -> None:
    """The log is read again when a delivery was tried."""

    @callback(app, Output("delivery-log", "children"), Input("delivery-stamp", "data"), State("url", "search"), prevent_initial_call=True)
    async def changed(stamp: Any, search: str | None) -> Any:
        return await _log(house, dict(parse_qsl((search or "").lstrip("?"))))


async def _log(house: House, query: Query) -> list[Any]:
    channel, outcome, story = query.get("channel", ""), query.get("outcome", ""), query.get("incident", "")
    async with house.engine.connect() as conn:
        incident = await incidents.known(conn, story) if story else None
        uid = None if incident is None else incident.uid
        before = _moment(query.get("before"))
        found = await receipts.attempts(conn, incident_uid=uid, channel_name=channel, outcome=outcome, before=before, limit=PAGE + 1)
        receivers, lately = await receipts.channels(conn), await receipts.lately(conn)
    if story and incident is None:
        return [empty("There is no such incident", html.P(html.A("Show every delivery", href=f"{house.base}deliveries")))]
    shown, older = found[:PAGE], found[PAGE:]
    filters: list[Any] = [_chips(query, "outcome", OUTCOMES)]
    if incident is not None:
        filters.append(_one(house, query, incident.uid, incident.lead))
    parts: list[Any] = [
        html.Div([_receiver(query, each, lately.get(each["name"], Lately())) for each in receivers], className="receivers"),
        html.Div(filters, className="filters"),
        _table(house, shown) if shown else _nothing(house, query),
    ]
    if older:
        further = urlencode({**query, "before": shown[-1].at.astimezone(UTC).isoformat()})
        parts.append(html.P(dcc.Link("Older attempts", href=f"?{further}", className="button link-button")))
    if query.get("before"):
        newest = urlencode({key: value for key, value in query.items() if key != "before"})
        parts.append(html.P(dcc.Link("Back to the newest", href=f"?{newest}")))
    return parts


def _moment(text: str | None) -> datetime | None:
    try:
        found = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _receiver(query: Query, each: Mapping[str, Any], lately: Lately) -> Any:
    """How one receiver is; pressing it shows its deliveries only."""
    chosen = query.get("channel") == each["name"]
    counts = ", ".join(f"{getattr(lately, word):,} {word}" for word in ("delivered", "failed", "refused") if getattr(lately, word))
    half = f", half within {lately.median_ms:,.0f} ms" if lately.median_ms is not None else ""
    lines: list[Any] = [html.Div([counts, html.Span(f" in the last day{half}", className="dim")] if counts else "Nothing in the last day")]
    if each["waiting"]:
        lines.append(html.Div(f"{each['waiting']:,} {'waits' if each['waiting'] == 1 else 'wait'}"))
    if each["last_ok_at"] is not None:
        lines.append(html.Div(["last taken ", moment(each["last_ok_at"], age=True)], className="dim"))
    if each["last_error_at"] is not None:
        lines.append(html.Div(["last error ", moment(each["last_error_at"], age=True), f": {each['last_error']}"], className="dim"))
    failing = each["state"] == "ok" and each["failures"]
    word = f"failed {each['failures']} in a row" if failing else STATES.get(each["state"], each["state"])
    state = html.Span(word, className=f"state channel-{'resting' if failing else each['state']}")
    return dcc.Link(
        [html.Div([html.B(each["name"]), state]), *lines],
        href="?" + _with(query, "channel", "" if chosen else each["name"]),
        className=f"card receiver{' chosen' if chosen else ''}",
        title="Show every receiver" if chosen else f"Show only {each['name']}",
    )


def _chips(query: Query, key: str, choices: Sequence[tuple[str, str]]) -> Any:
    links = [
        html.Span(label, className="chip chosen", **{"aria-current": "true"})
        if value == query.get(key, "")
        else dcc.Link(label, href="?" + _with(query, key, value), className="chip")
        for value, label in choices
    ]
    return html.Div(links, className="chips", role="group", **{"aria-label": key.capitalize()})


def _with(query: Mapping[str, str], key: str, value: str) -> str:
    """The query with one choice changed, from its first page on; an empty choice is left out."""
    kept = {name: text for name, text in query.items() if name not in (key, "before")}
    return urlencode({**kept, key: value} if value else kept)


def _one(house: House, query: Query, uid: object, lead: str) -> Any:
    return html.Div(
        [
            html.Span("of the incident ", className="dim"),
            html.A(lead, href=house.incident(uid)),
            dcc.Link("Show every incident", href="?" + _with(query, "incident", ""), className="small"),
        ],
        className="of-one",
    )


def _nothing(house: House, query: Query) -> Any:
    if any(query.get(key) for key in ("channel", "outcome", "incident", "before")):
        return empty("No delivery matches", html.P(html.A("Show every delivery", href=f"{house.base}deliveries")))
    slack, hook, table = (html.Code(each) for each in ("VITALS_SLACK_WEBHOOK_URL", "VITALS_WEBHOOK_URL", "[channel.NAME]"))
    return empty(
        "Nothing has been sent yet",
        html.P(["Alarms are sent once a channel is set up: ", slack, ", ", hook, " or a ", table, " table in the rules file."]),
    )


def _table(house: House, attempts: Sequence[Attempt]) -> Any:
    return cards("Attempts", HEADS, [_row(house, each) for each in attempts], wide=("What", "Error"), framed=True)


def _row(house: House, each: Attempt) -> list[Any]:
    again = f", attempt {each.attempt}" if each.attempt > 1 else ""
    status = f" ({each.status})" if each.status is not None else ""
    outcome = html.Span(
        [html.Span(className="icon", **{"aria-hidden": "true"}), f"{WORDS.get(each.outcome, each.outcome)}{status}{again}"],
        className=f"delivery delivery-{'sent' if each.outcome == 'delivered' else each.outcome}",
    )
    what = html.A(each.title, href=house.incident(each.incident)) if each.incident is not None else each.title
    return [
        moment(each.at),
        html.B(each.channel),
        outcome,
        f"{each.latency_ms:,.0f} ms" if each.latency_ms is not None else "–",
        [what, html.Div(each.to_state, className="dim")],
        html.A(each.run_name, href=house.run(each.run)),
        html.Span(each.error or "–", className="dim"),
    ]
