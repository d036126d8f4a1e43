"""``/compare?runs=a,b``: what differs in the set-up, where the runs part, their values side by side and their curves on top of each other."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from dash import Dash, Input, Output, State, dcc, html

from dashboards.charts import TITLES, Chart, charts_for
from dashboards.pages import House, Query, callback
from dashboards.pages.run import AXES, SMOOTHING, card, select
from dashboards.parting import Parting, partings
from dashboards.words import attribute, empty, flatten, number, pill
from monitor.metrics import ORGANS, describe
from monitor.store import queries, series
from monitor.store.queries import Connection, RunView

MOST = 20
MOST_SETTINGS = 40
KEY = (
    "reward.task.mean",
    "reward.total.mean",
    "reward.aux.mean",
    "eval.task.mean",
    "adv.nonzero_frac",
    "group.all_fail_frac",
    "entropy.mean",
    "kl_ref.k3",
    "iw.max",
    "iw.ess",
    "mismatch.kl.k3",
    "opt.grad_norm",
    "len.completion.mean",
    "len.truncated_frac",
    "rep.ngram_frac",
    "perf.step_time_s",
)
"""What is compared unless everything is asked for."""

UNJUDGED = ("reward.total.mean", "adv.nonzero_frac")
"""More is not better: a bonus can be farmed, and a solved task has little advantage left."""

Values = dict[str, dict[int, float]]
"""Metric -> step -> finite value, of each step its newest attempt."""


async def view(house: House, parts: list[str], query: Query) -> Any:
    """The page for the runs in the address; the first is the baseline."""
    uids = [uid for uid in query.get("runs", "").split(",") if uid][:MOST]
    async with house.engine.connect() as conn:
        runs = await queries.find_runs(conn, uids)
        logged = [await series.metric_names(conn, run.id, run.seq) for run in runs]
        begins = {run.uid: [[each.segment, each.first_step or 0] for each in await queries.segments(conn, run.id)] for run in runs}
    head = html.Div([html.H1("Compare")], className="head")
    if len(runs) < 2:
        text = html.P(["Mark two or more runs in the ", html.A("fleet", href=house.base), " and press Compare. The first one is the baseline."])
        return html.Div([head, empty("Choose at least two runs", text)], className="view", **{"data-page": "compare-empty"})
    everything = query.get("all") == "1"
    names = list(dict.fromkeys(name for each in logged for name in each))
    charts = _charts(names, everything)
    return html.Div(
        [
            head,
            html.Div([_chip(house, query, runs, place) for place in range(len(runs))], className="legend-runs"),
            html.Section(html.Div("Comparing", className="loading"), id="compare-findings", **{"aria-label": "Where they part"}),
            _tools(query, everything),
            html.Section(
                [html.Div([card(chart) for chart in charts], className="grid")],
                **{"aria-label": "Charts"},
            ),
            html.Div(id="marks", hidden=True, **{"data-marks": "[]"}),
            dcc.Store(id="compare-ask", data=[run.uid for run in runs]),
        ],
        className="view",
        **{
            "data-page": "compare",
            "data-runs": attribute([run.uid for run in runs]),
            "data-names": attribute({run.uid: run.label or run.name for run in runs}),
            "data-begins": attribute(begins),
            "data-metrics": attribute(names),
            "data-steps": "[]",
        },
    )


def register(app: Dash, house: House) -> None:
    """The findings are computed after the page stands, so that the curves need not wait for them."""

    @callback(app, Output("compare-findings", "children"), Input("compare-ask", "data"), State("url", "search"))
    async def compared(uids: list[str], search: str | None) -> Any:
        async with house.engine.connect() as conn:
            runs = await queries.find_runs(conn, uids)
            values = [await _values(conn, run) for run in runs]
        found = await asyncio.to_thread(_partings, values)
        return [_differences(runs), _parting(runs, found), _table(runs, values)]


async def _values(conn: Connection, run: RunView) -> Values:
    """The key metrics at the resolution that all runs of the page share: raw up to 500 steps, then buckets."""
    begin, end = await series.first_step(conn, run.id), run.last_step or 0
    width = series.width_for(begin, end, 500)
    curves = await series.read(conn, run.id, KEY, first=begin, last=end, width=width, rows=run.seq)
    return {
        name: {x: y for number in sorted(attempts) for x, y in zip(attempts[number].x, attempts[number].y, strict=True) if y is not None}
        for name, attempts in curves.items()
    }


def _partings(values: Sequence[Values]) -> list[list[Parting]]:
    return [partings(KEY, values[0], other) for other in values[1:]]


def _charts(names: Sequence[str], everything: bool) -> list[Chart]:
    """One chart per metric, so that colours can tell the runs apart; all of them where none is a key metric."""
    known = [name for name in KEY if name in names]
    wanted = known if known and not everything else names
    charts = [chart for name in wanted for chart in charts_for([name])]
    return sorted(charts, key=lambda chart: ORGANS.index(chart.organ))


def _chip(house: House, query: Query, runs: Sequence[RunView], place: int) -> Any:
    run = runs[place]
    others = [each.uid for each in runs if each.uid != run.uid]
    parts: list[Any] = [
        html.I(style={"background": f"var(--line-{place % 10 + 1})"}),
        html.A(run.label or run.name, href=house.run(run.uid)),
        pill(run.severity),
        html.Span(f"step {run.last_step:,}" if run.last_step is not None else "no step", className="dim"),
    ]
    if place == 0:
        parts.append(html.Span("baseline", className="state"))
    else:
        first = urlencode({**query, "runs": ",".join([run.uid, *others])})
        parts.append(dcc.Link("make baseline", href=f"{house.base}compare?{first}", className="small"))
    if len(runs) > 2:
        without = urlencode({**query, "runs": ",".join(others)})
        parts.append(dcc.Link("leave out", href=f"{house.base}compare?{without}", className="small"))
    return html.Div(parts, className="run-chip")


def _tools(query: Query, everything: bool) -> Any:
    other = urlencode({key: value for key, value in query.items() if key != "all"} | ({} if everything else {"all": "1"}))
    switch = dcc.Link("Key metrics only" if everything else "Every metric", href=f"?{other}", className="small")
    whole = html.Button("Whole run", id="unzoom", className="button", hidden=True)
    choices = [select("axis", "Horizontal axis", AXES), select("smooth", "Smoothing", SMOOTHING)]
    tools = html.Div([html.Div(id="find", className="find"), *choices, whole], className="tools")
    return html.Div([html.Div([html.H2("Curves"), switch], className="jump"), tools], className="toolbar")


def _differences(runs: Sequence[RunView]) -> Any:
    """Settings in which the runs differ, the configuration first."""
    flat = [dict(flatten({"config": run.config, "environment": _stable(run.environment)})) for run in runs]
    keys = sorted({key for each in flat for key in each}, key=lambda key: (not key.startswith("config."), key))
    differ = [key for key in keys if len({each.get(key) for each in flat}) > 1]
    title = html.H2("What differs in the set-up")
    if not differ:
        return html.Div([title, html.P("Nothing: configuration and environment are the same.", className="dim")], className="block")
    rows = [_setting(key, [each.get(key, "–") for each in flat]) for key in differ[:MOST_SETTINGS]]
    left = len(differ) - len(rows)
    more = [html.P(f"and {left} more", className="dim")] if left else []
    return html.Div([title, _scroll(_heads("Setting", runs), rows, "What differs"), *more], className="block")


def _setting(key: str, values: Sequence[str]) -> Any:
    return html.Tr([html.Th(key.removeprefix("config."), scope="row"), *(html.Td(value, className="mono num") for value in values)])


def _stable(environment: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in environment.items() if key not in ("pid", "host", "command", "folder")}


def _parting(runs: Sequence[RunView], found: Sequence[Sequence[Parting]]) -> Any:
    lines = [_parts(runs[0], other, each) for other, each in zip(runs[1:], found, strict=True)]
    return html.Div([html.H2("Where they part"), *lines], className="block")


def _parts(base: RunView, other: RunView, found: Sequence[Parting]) -> Any:
    name = html.B(other.label or other.name)
    if not found:
        return html.P([name, " does not part from ", html.B(base.label or base.name), " beyond the noise in any key metric."])
    first = found[0]
    rest = [html.Span([describe(each.metric).title, " at ", html.B(f"{each.step:,}")]) for each in found[1:6]]
    line = [name, " parts first at ", html.B(f"step {first.step:,}"), " in ", html.B(describe(first.metric).title), "."]
    return html.Div(
        [html.P(line), *([html.Div([html.Span("then ", className="dim"), *rest], className="facts-line")] if rest else [])], className="parts"
    )


def _table(runs: Sequence[RunView], values: Sequence[Values]) -> Any:
    rows = []
    for name in KEY:
        cells = [_summary(name, each.get(name, {})) for each in values]
        if any(cell is not None for cell in cells):
            told = [_cell(name, cell, cells[0] if place else None) for place, cell in enumerate(cells)]
            title = [describe(name).title, " ", html.Span(TITLES[describe(name).organ], className="dim small")]
            rows.append(html.Tr([html.Th(title, scope="row"), *told]))
    note = html.P("Mean of the last 10 points against the baseline; below it the best.", className="dim")
    return html.Div([html.H2("Values"), note, _scroll(_heads("Metric", runs), rows, "Values")], className="block")


def _summary(name: str, series_of: Mapping[int, float]) -> tuple[float, float | None] | None:
    """The mean of the last ten points and the best value, which only metrics with a direction have."""
    if not series_of:
        return None
    ordered = [series_of[step] for step in sorted(series_of)]
    tail = ordered[-10:]
    healthy = describe(name).healthy
    best = max(ordered) if healthy == "up" else min(ordered) if healthy == "down" else None
    return sum(tail) / len(tail), best


def _cell(name: str, cell: tuple[float, float | None] | None, base: tuple[float, float | None] | None) -> Any:
    if cell is None:
        return html.Td("–", className="num dim")
    last, best = cell
    parts: list[Any] = [html.B(number(last))]
    if base is not None and base[0] != 0:
        change = (last - base[0]) / abs(base[0])
        healthy = describe(name).healthy
        judged = healthy in ("up", "down") and name not in UNJUDGED and abs(change) > 0.02
        good = (change > 0) == (healthy == "up") if judged else None
        word = "same" if abs(change) < 0.005 else f"{change:+.0%}" if abs(change) < 10 else f"{last / base[0]:.3g}×"
        tone = "" if good is None else " better" if good else " worse"
        parts.append(html.Span([" ", word, {True: " better", False: " worse", None: ""}[good]], className=f"change{tone}"))
    if best is not None:
        parts.append(html.Div(["best ", number(best)], className="sub"))
    return html.Td(parts, className="num")


def _heads(first: str, runs: Sequence[RunView]) -> Any:
    dots = [html.I(className="dot", style={"background": f"var(--line-{place % 10 + 1})"}) for place in range(len(runs))]
    heads = [html.Th([dot, run.label or run.name], scope="col", className="num") for dot, run in zip(dots, runs, strict=True)]
    return html.Tr([html.Th(first, scope="col"), *heads])


def _scroll(head: Any, rows: Sequence[Any], label: str) -> Any:
    table = html.Table([html.Thead(head), html.Tbody(rows)], className="plain compare")
    return html.Div(table, className="scroll", tabIndex=0, role="region", **{"aria-label": label})
