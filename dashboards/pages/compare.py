"""``/compare?runs=a,b``: what differs in the set-up, where the runs part, their values side by side and their curves on top of each other.

``baseline=b`` names the run that the others are held against (else the first), ``group=KEY`` draws the runs that share a setting as one line.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qsl, urlencode

from dash import Dash, Input, Output, State, dcc, html

from dashboards import findings, grouping
from dashboards.charts import Chart, charts_for
from dashboards.grouping import Line
from dashboards.outcome import Values, lived, outcome
from dashboards.pages import House, Query, callback
from dashboards.pages.run import AXES, SMOOTHING, card, select
from dashboards.parting import Parting, partings
from dashboards.settings_of import settings_of
from dashboards.words import attribute, choice, empty, pill
from monitor.metrics import ORGANS
from monitor.store import queries, series
from monitor.store.queries import Connection, RunView

MOST = 20

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
"""What is compared unless everything is asked for, together with the runs' own rewards."""

MOST_REWARDS = 8

Curves = series.Curves
log = logging.getLogger(__name__)


async def view(house: House, parts: list[str], query: Query) -> Any:
    """The page for the runs in the address."""
    asked = list(dict.fromkeys(uid for uid in query.get("runs", "").split(",") if uid))
    uids = asked[:MOST]
    async with house.engine.connect() as conn:
        runs = await queries.find_runs(conn, uids)
        logged = [await series.metric_names(conn, run.id, run.seq) for run in runs]
        begins = {run.uid: [[each.segment, each.first_step or 0] for each in await queries.segments(conn, run.id)] for run in runs}
    head = html.Div([html.H1("Compare")], className="head")
    left_out = _left_out(asked, runs)
    if len(runs) < 2:
        text = html.P(["Mark two or more runs in the ", html.A("fleet", href=house.base), " and press Compare."])
        return html.Div([head, empty("Choose at least two runs", *left_out, text)], className="view", **{"data-page": "compare-empty"})
    everything = query.get("all") == "1"
    names = list(dict.fromkeys(name for each in logged for name in each))
    charts = _charts(names, runs, everything)
    base = _baseline(runs, query)
    lines = grouping.lines(runs, _group(runs, query))
    return html.Div(
        [
            head,
            *left_out,
            _legend(house, query, runs, base, lines),
            html.Section(html.Div("Comparing", className="loading"), id="compare-findings", **{"aria-label": "Where they part"}),
            _tools(query, runs, everything),
            html.Section(
                [html.Div([card(chart) for chart in charts], className="grid")],
                **{"aria-label": "Charts"},
            ),
            html.Div(id="marks", hidden=True, **{"data-marks": "[]"}),
            dcc.Store(id="compare-ask", data=[run.uid for run in runs]),
        ],
        className="view",
        key=f"{query}",
        **{
            "data-page": "compare",
            "data-runs": attribute([run.uid for run in runs]),
            "data-names": attribute({run.uid: run.shown for run in runs}),
            "data-lines": attribute([{"name": line.name, "runs": line.runs, "base": base.uid in line.runs} for line in lines]),
            "data-begins": attribute(begins),
            "data-metrics": attribute(names),
            "data-steps": "[]",
        },
    )


def register(app: Dash, house: House) -> None:
    """The findings are computed after the page stands, so that the curves need not wait for them."""

    @callback(app, Output("compare-findings", "children"), Input("compare-ask", "data"), State("url", "search"))
    async def compared(uids: list[str], search: str | None) -> Any:
        try:
            return await _found(house, uids, dict(parse_qsl((search or "").lstrip("?"))))
        except Exception:
            log.exception("%s could not be compared", uids)
            again = html.P([html.A("Try again", href=""), "; the collector's log says more. The curves below do not depend on it."])
            return html.Div([html.H2("The runs could not be compared"), again], className="block")


async def _found(house: House, uids: Sequence[str], query: Query) -> Any:
    async with house.engine.connect() as conn:
        runs = await queries.find_runs(conn, uids)
        metrics = key_metrics([name for run in runs for name in await series.metric_names(conn, run.id, run.seq)], runs)
        curves = [await _curves(conn, run, metrics) for run in runs]
        settings = [settings_of(run, await queries.events(conn, run.id, kind="regime")) for run in runs]
    if not runs:
        return []
    base = runs.index(_baseline(runs, query))
    found = await asyncio.to_thread(_partings, metrics, curves, base)
    slots = _slots(runs, grouping.lines(runs, _group(runs, query)))
    heads = [findings.head(run, slot, place == base) for place, (run, slot) in enumerate(zip(runs, slots, strict=True))]
    outcomes = [{name: outcome(name, each[name]) for name in metrics if name in each} for each in curves]
    return [
        findings.differences(heads, settings),
        findings.parting(runs, base, found),
        findings.values(heads, metrics, outcomes, base),
        findings.across(house, runs, slots, settings, outcomes),
    ]


def _left_out(asked: Sequence[str], runs: Sequence[RunView]) -> list[Any]:
    """Which of the runs in the address are not compared, and why."""
    here = {run.uid for run in runs}
    gone = [uid for uid in asked[:MOST] if uid not in here]
    told = [f"This collector holds no run {', '.join(gone)}."] if gone else []
    told += [f"The first {MOST} of {len(asked):,} runs are compared."] if len(asked) > MOST else []
    return [html.P(each, className="dim") for each in told]


def key_metrics(logged: Sequence[str], runs: Sequence[RunView]) -> list[str]:
    """The key metrics that were logged: the catalogue's, and the rewards that the runs are made of."""
    own = [name for run in runs for name in (run.task_reward, *run.aux_rewards) if name]
    parts = [name for name in logged if name.startswith("reward.aux.") and name.endswith(".mean")]
    more = [name for name in dict.fromkeys([*own, *parts]) if name not in KEY][:MOST_REWARDS]
    known = set(logged)
    return [name for name in (*KEY[:3], *more, *KEY[3:]) if name in known]


async def _curves(conn: Connection, run: RunView, metrics: Sequence[str]) -> Curves:
    """The key metrics at the resolution that all runs of the page share: raw up to 500 steps, then buckets."""
    begin, end = await series.first_step(conn, run.id), run.last_step or 0
    return await series.read(conn, run.id, metrics, first=begin, last=end, width=series.width_for(begin, end, 500), rows=run.seq)


def _partings(metrics: Sequence[str], curves: Sequence[Curves], base: int) -> list[list[Parting]]:
    values: list[Values] = [{name: lived(attempts)[0] for name, attempts in each.items()} for each in curves]
    return [partings(metrics, values[base], each) for place, each in enumerate(values) if place != base]


def _charts(names: Sequence[str], runs: Sequence[RunView], everything: bool) -> list[Chart]:
    """One chart per metric, so that colours can tell the runs apart; all of them where none is a key metric."""
    known = key_metrics(names, runs)
    wanted = known if known and not everything else names
    charts = [chart for name in wanted for chart in charts_for([name])]
    return sorted(charts, key=lambda chart: ORGANS.index(chart.organ))


def _baseline(runs: Sequence[RunView], query: Query) -> RunView:
    """The run that the address names, else the first."""
    return next((run for run in runs if run.uid == query.get("baseline")), runs[0])


def _group(runs: Sequence[RunView], query: Query) -> str:
    """What the runs are grouped by; empty where none of them has such a setting."""
    key = query.get("group", "")
    return key if grouping.known(runs, key) else ""


def _slots(runs: Sequence[RunView], lines: Sequence[Line]) -> list[int]:
    """Each run's place in the palette: that of the first line it is part of."""
    return [next(slot for slot, line in enumerate(lines) if run.uid in line.runs) for run in runs]


def _legend(house: House, query: Query, runs: Sequence[RunView], base: RunView, lines: Sequence[Line]) -> Any:
    slots = _slots(runs, lines)
    chips = html.Div([_chip(house, query, runs, place, slots[place], base) for place in range(len(runs))], className="legend-runs")
    asked = query.get("group", "")
    if not asked:
        return chips
    if not _group(runs, query):
        return html.Div([html.P(f"None of these runs has a setting called {asked}; each is drawn by itself.", className="dim"), chips])
    names = [
        html.Span([html.I(className="dot", style=findings.colour(slot)), html.B(line.name)], className="group-name")
        for slot, line in enumerate(lines)
    ]
    text = "A line is the mean of its runs at a step, its band reaches from the smallest to the largest of them; n says how many runs it has."
    return html.Div([html.Div(names, className="legend-groups"), html.P(text, className="dim"), chips])


def _chip(house: House, query: Query, runs: Sequence[RunView], place: int, slot: int, base: RunView) -> Any:
    run = runs[place]
    parts: list[Any] = [
        html.I(style=findings.colour(slot)),
        html.A(run.shown, href=house.run(run.uid)),
        pill(run.severity),
        html.Span(f"step {run.last_step:,}" if run.last_step is not None else "no step", className="dim"),
    ]
    parts.append(html.Span("baseline", className="state") if run is base else _change(house, query, "make baseline", {"baseline": run.uid}))
    if len(runs) > 2:
        left = ",".join(each.uid for each in runs if each is not run)
        parts.append(_change(house, query, "leave out", {"runs": left, **({"baseline": ""} if run is base else {})}))
    return html.Div(parts, className="run-chip")


def _change(house: House, query: Query, text: str, changes: dict[str, str]) -> Any:
    """A link to the page with some of its address changed; the driver adds what it put into the address since."""
    address = urlencode({key: value for key, value in (query | changes).items() if value})
    return html.A(text, href=f"{house.base}compare?{address}", className="small", **{"data-set": attribute(changes)})


def _tools(query: Query, runs: Sequence[RunView], everything: bool) -> Any:
    other = urlencode({key: value for key, value in query.items() if key != "all"} | ({} if everything else {"all": "1"}))
    changes = attribute({"all": "" if everything else "1"})
    switch = html.A("Key metrics only" if everything else "Every metric", href=f"?{other}", className="small", **{"data-set": changes})
    whole = html.Button("Whole run", id="unzoom", className="button", hidden=True)
    known = list(dict.fromkeys([*grouping.keys(runs), *([key] if (key := _group(runs, query)) else [])]))
    groups = choice(query, "group", "One line for runs with the same", [("", "Run by run"), *((key, f"By {key}") for key in known)])
    choices = [groups, select("axis", "Horizontal axis", AXES), select("smooth", "Smoothing", SMOOTHING)]
    tools = html.Div([html.Div(id="find", className="find"), *choices, whole], className="tools")
    return html.Div([html.Div([html.H2("Curves"), switch], className="jump"), tools], className="toolbar", id="curves")
