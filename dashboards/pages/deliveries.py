"""``/deliveries``: every attempt to tell somebody, with what came of it, and how each receiver is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, urlencode
from uuid import UUID

from dash import Dash, Input, Output, State, dcc, html

from dashboards.pages import House, Query, callback
from dashboards.tables import cards
from dashboards.words import empty, moment
from monitor.detect.words import counted
from monitor.store import incidents, queries, receipts
from monitor.store.receipts import Attempt, Carried, Lately, Load

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
    channel, outcome, story, message = (query.get(key, "") for key in ("channel", "outcome", "incident", "message"))
    async with house.engine.connect() as conn:
        incident = await incidents.known(conn, story) if story else None
        uid = None if incident is None else incident.uid
        found = await receipts.attempts(
            conn,
            incident_uid=uid,
            channel_name=channel,
            outcome=outcome,
            message=_uid(message),
            before=_moment(query.get("before")),
            limit=PAGE + 1,
            together=True,
        )
        loads = await receipts.loads(conn, list({each.digest for each in found if each.digest is not None}))
        receivers, lately = await receipts.channels(conn), await receipts.lately(conn)
    if story and incident is None:
        return [empty("There is no such incident", html.P(html.A("Show every delivery", href=f"{house.base}deliveries")))]
    if message and _uid(message) is None:
        return [empty("There is no such message", html.P(html.A("Show every delivery", href=f"{house.base}deliveries")))]
    shown, older = found[:PAGE], found[PAGE:]
    filters: list[Any] = [_chips(query, "outcome", OUTCOMES)]
    if incident is not None:
        filters.append(_one("of the incident ", html.A(incident.lead, href=house.incident(incident.uid)), query, "incident"))
    if message:
        filters.append(_one("of one message", None, query, "message"))
    parts: list[Any] = [
        html.Div([_receiver(query, each, lately.get(each["name"], Lately())) for each in receivers], className="receivers"),
        html.Div(filters, className="filters"),
        _table(house, query, shown, loads) if shown else _nothing(house, query),
    ]
    if older:
        further = urlencode({**query, "before": shown[-1].at.astimezone(UTC).isoformat()})
        parts.append(html.P(dcc.Link("Older attempts", href=f"?{further}", className="button link-button")))
    if query.get("before"):
        newest = urlencode({key: value for key, value in query.items() if key != "before"})
        parts.append(html.P(dcc.Link("Back to the newest", href=f"?{newest}")))
    return parts


def _uid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


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


def _one(words: str, lead: Any, query: Query, key: str) -> Any:
    """What the log is narrowed to, and the way back to all."""
    back = dcc.Link(f"Show every {key}", href="?" + _with(query, key, ""), className="small")
    return html.Div([html.Span(words, className="dim"), lead, back], className="of-one")


def _nothing(house: House, query: Query) -> Any:
    if any(query.get(key) for key in ("channel", "outcome", "incident", "message", "before")):
        return empty("No delivery matches", html.P(html.A("Show every delivery", href=f"{house.base}deliveries")))
    slack, hook, table = (html.Code(each) for each in ("VITALS_SLACK_WEBHOOK_URL", "VITALS_WEBHOOK_URL", "[channel.NAME]"))
    return empty(
        "Nothing has been sent yet",
        html.P(["Alarms are sent once a channel is set up: ", slack, ", ", hook, " or a ", table, " table in the rules file."]),
    )


def _table(house: House, query: Query, attempts: Sequence[Attempt], loads: Mapping[UUID, Load]) -> Any:
    rows = [_row(house, query, each, None if each.digest is None else loads[each.digest]) for each in attempts]
    return cards("Attempts", HEADS, rows, wide=("What", "Error"), framed=True)


def _row(house: House, query: Query, each: Attempt, load: Load | None) -> list[Any]:
    again = f", attempt {each.attempt}" if each.attempt > 1 else ""
    status = f" ({each.status})" if each.status is not None else ""
    outcome = html.Span(
        [html.Span(className="icon", **{"aria-hidden": "true"}), f"{WORDS.get(each.outcome, each.outcome)}{status}{again}"],
        className=f"delivery delivery-{'sent' if each.outcome == 'delivered' else each.outcome}",
    )
    one = html.A(each.title, href=house.incident(each.incident)) if each.incident is not None else each.title
    what = [one, html.Div(each.to_state, className="dim")] if load is None else [_load(house, load)]
    if (each.attempt > 1 or each.outcome != "delivered") and not query.get("message"):
        what.append(dcc.Link("Every attempt", href="?" + _with({}, "message", str(each.message)), className="small"))
    return [
        moment(each.at),
        html.B(each.channel),
        outcome,
        f"{each.latency_ms:,.0f}\N{NO-BREAK SPACE}ms" if each.latency_ms is not None else "–",
        what,
        html.A(each.run_name, href=house.run(each.run)) if load is None or load.runs == 1 else counted(load.runs, "run"),
        html.Span(each.error or "–", className="dim"),
    ]


def _load(house: House, load: Load) -> Any:
    """A digest: how much it carried, and folded below it each change with its incident."""
    rest = load.changes - len(load.first)
    lines = [html.Li(_carried(house, each)) for each in load.first] + ([html.Li(f"and {rest:,} more")] if rest else [])
    title = f"{counted(load.changes, 'change')} {'collected' if load.collected else 'at once'}, in {counted(load.runs, 'run')}"
    return html.Details([html.Summary(title), html.Ul(lines, className="carried")], className="more")


def _carried(house: House, each: Carried) -> list[Any]:
    where = f" {each.to_state} at step {each.step:,}, {each.run_name}"
    return [html.A(each.title, href=house.incident(each.incident)) if each.incident else each.title, html.Span(where, className="dim")]
