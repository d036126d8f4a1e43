"""``/project/NAME``: every run of a project over weeks, where its task reward ended, how it was judged, and a way to compare some of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from dash import html

from dashboards import past
from dashboards.outcome import TAIL
from dashboards.pages import House, Query
from dashboards.words import SEVERITIES, STATES, attribute, choice, empty, moment, number, pill
from monitor.store import projects
from monitor.store.projects import Past, Wanted
from monitor.wire import OUTCOMES

DRAWN = 500
"""Runs in the picture: the newest that match."""

PAGE = 50
SPANS = (("", "All time"), ("4", "4 weeks"), ("12", "12 weeks"), ("52", "1 year"))


async def view(house: House, parts: list[str], query: Query) -> Any:
    """The page for the project named by the path, and the filters and the page of the table in the address."""
    name = "/".join(parts)
    wanted = Wanted(name, _since(query), query.get("severity", ""), query.get("label", ""))
    first = PAGE * max(0, _whole(query.get("page", "")) - 1)
    async with house.engine.connect() as conn:
        if not await projects.exists(conn, name):
            return _none(house, name)
        counts = await projects.tally(conn, Wanted(name, wanted.since, "", wanted.outcome))
        drawn = await projects.history(conn, wanted, limit=DRAWN)
        listed = drawn[first : first + PAGE] if first + PAGE <= DRAWN else await projects.history(conn, wanted, limit=PAGE, offset=first)
    total = counts.get(wanted.severity, 0) if wanted.severity else sum(counts.values())
    return html.Div(
        [
            _head(house, name, total),
            _filters(query, counts),
            *(_found(house, query, drawn, listed, first, total) if total else [_nothing(house, name)]),
        ],
        className="view",
        key=f"{name} {query}",
        **{"data-page": "project"},
    )


def _found(house: House, query: Query, drawn: Sequence[Past], listed: Sequence[Past], first: int, total: int) -> list[Any]:
    best, by_label = query.get("value") == "best", query.get("by") == "label"
    figure = past.figure(drawn, {run.uid: house.run(run.uid) for run in drawn}, best=best, by_label=by_label)
    what = f"{'Best' if best else 'Last'} task reward of {len(drawn):,} runs by the time they started; the table below lists them"
    choices = [
        choice(query, "value", "Reward", (("", "Last reward"), ("best", "Best reward"))),
        choice(query, "by", "Colour and shape", (("", "By verdict"), ("label", "By label"))),
    ]
    note = f"The newest {DRAWN:,} of {total:,} runs. A click on a mark opens its run." if total > DRAWN else "A click on a mark opens its run."
    plot = html.Div(className="figure tall", role="img", **{"aria-label": what, "data-figure": attribute(figure)})
    chart = html.Section(
        [html.Div([html.P(note, className="dim"), html.Div(choices, className="tools")], className="filters"), plot], className="block"
    )
    return [html.Div(chart, id="past"), _table(house, listed), _pages(query, first, len(listed), total)]


def _head(house: House, name: str, total: int) -> Any:
    fleet = html.A("in the fleet", href=f"{house.base}?{urlencode({'project': name})}")
    facts = [html.Span([html.B(f"{total:,}"), " run" if total == 1 else " runs"]), fleet]
    return html.Div(
        [html.Div([html.H1(name), html.Span("history", className="state")]), html.Div(facts, className="facts-line dim")], className="head"
    )


def _filters(query: Query, counts: Mapping[str, int]) -> Any:
    chosen = query.get("severity", "")
    shown = {name: count for name, count in counts.items() if count or name == chosen} | ({chosen: 0} if chosen and chosen not in counts else {})
    chips = [
        html.A(
            [html.Span(className="icon", **{"aria-hidden": "true"}), f"{count:,} {SEVERITIES.get(name, name).lower()}"],
            className=f"chip sev-{name.replace(' ', '-')}{' chosen' if name == chosen else ''}",
            **_link(query, {"severity": "" if name == chosen else name}),
            **({"aria-current": "true"} if name == chosen else {}),
        )
        for name, count in shown.items()
    ]
    labels = (("", "Any label"), *((each, each.capitalize()) for each in OUTCOMES), ("-", "No label"))
    choices = [choice(query, "weeks", "Started within", SPANS), choice(query, "label", "Label", labels)]
    verdicts = html.Div(chips, className="chips", role="group", **{"aria-label": "Filter by verdict"})
    return html.Div([verdicts, html.Div(choices, className="tools")], className="filters")


def _link(query: Query, changes: dict[str, str]) -> dict[str, str]:
    """The address with some of it changed, from its first page on unless that is what changes."""
    changes = {"page": ""} | changes
    return {"href": "?" + urlencode({key: value for key, value in (query | changes).items() if value}), "data-set": attribute(changes)}


def _table(house: House, listed: Sequence[Past]) -> Any:
    heads = ("Run", "Started", "Verdict", "Label", "State", "Last step", "Last task reward", "Best task reward")
    head = html.Tr([html.Th(text, scope="col", className="num" if place > 4 else "") for place, text in enumerate(heads)])
    table = html.Table([html.Thead(head), html.Tbody([_row(house, run) for run in listed])], className="plain compare runs")
    compare = html.Button("Compare", id="project-compare", className="button", disabled=True)
    title = html.Div([html.H2("Runs"), compare], className="filters")
    note = html.P(f"Last task reward: the mean of the last {TAIL} points. Best: the best of all.", className="dim")
    return html.Section([title, note, html.Div(table, className="scroll", tabIndex=0, role="region", **{"aria-label": "Runs"})], className="block")


def _row(house: House, run: Past) -> Any:
    last = [number(run.last), *([html.Div(["newest ", run.bad], className="sub worse")] if run.bad else [])]
    name = [html.Span(**{"data-markable": run.uid, "data-name": run.shown}), html.A(run.shown, href=house.run(run.uid))]
    under = [html.Div(run.algorithm.upper(), className="sub")] if run.algorithm else []
    return html.Tr(
        [
            html.Th([*name, *under], scope="row"),
            html.Td(moment(run.created_at)),
            html.Td(pill(run.severity)),
            html.Td(run.outcome or "–"),
            html.Td(STATES.get(run.state, run.state)),
            html.Td("–" if run.last_step is None else f"{run.last_step:,}", className="num"),
            html.Td(last, className="num"),
            html.Td(number(run.best), className="num"),
        ],
        **{"data-stop": ""},
    )


def _pages(query: Query, first: int, shown: int, total: int) -> Any:
    here = first // PAGE + 1
    links = []
    if first:
        links.append(html.A("Newer", className="button", rel="prev", **_link(query, {"page": str(here - 1) if here > 2 else ""})))
    links.append(html.Span(f"{first + 1:,} to {first + shown:,} of {total:,}" if shown else f"There is no page {here}", className="dim"))
    if first + shown < total and shown:
        links.append(html.A("Older", className="button", rel="next", **_link(query, {"page": str(here + 1)})))
    return html.Nav(links, className="tools paging", **{"aria-label": "Pages of the table"})


def _since(query: Query) -> datetime | None:
    weeks = _whole(query.get("weeks", ""))
    return datetime.now(UTC) - timedelta(weeks=min(weeks, 5200)) if weeks else None


def _whole(text: str) -> int:
    return min(int(text), 1_000_000) if text.isascii() and text.isdigit() and len(text) < 12 else 0


def _nothing(house: House, name: str) -> Any:
    link = html.A("Show every run", href=house.project(name))
    return empty("No run matches", html.P(["No run of this project fits these filters. ", link, "."]))


def _none(house: House, name: str) -> Any:
    return html.Div(
        [
            html.H1("There is no such project"),
            html.P(["No run of this collector belongs to a project ", html.Code(name), "."]),
            html.P([html.A("Go to the fleet", href=house.base), " to see every run."]),
        ],
        className="empty",
        **{"data-page": "lost"},
    )
