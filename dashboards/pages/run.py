"""``/run/UID``: is it well, since when, what proves it, what to do. Charts are drawn by the browser's driver from ``/api/v1/live``."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any
from urllib.parse import quote, urlencode

from dash import Dash, Input, Output, State, dcc, html, no_update

from dashboards import figures, quiet, rollouts, verdict
from dashboards.charts import QUESTIONS, TITLES, Chart, charts_for
from dashboards.pages import House, Query, callback, no_run
from dashboards.quiet import Past
from dashboards.words import STATES, attribute, moment, pairs
from monitor.metrics import ORGANS
from monitor.store import heat, queries, series
from monitor.store.queries import Connection, EventView, RunView
from monitor.wire import OUTCOMES, REQUESTS

AXES = (("step", "Step"), ("tokens", "Tokens"), ("elapsed", "Elapsed"), ("time", "Wall time"))
NEWEST = (("", "Whole run"), ("100", "Newest 100 steps"), ("1000", "Newest 1,000"), ("10000", "Newest 10,000"))
SMOOTHING = (("0", "No smoothing"), ("5", "Smooth 5"), ("20", "Smooth 20"), ("80", "Smooth 80"))


async def view(house: House, parts: list[str], query: Query) -> Any:
    """The page of the run named by the first part of the path."""
    uid = parts[0] if parts else ""
    async with house.engine.connect() as conn:
        run = await queries.find_run(conn, uid)
        if run is None:
            return html.Div(no_run(house, uid, html.H1), className="view", **{"data-page": "lost"})
        names = await series.metric_names(conn, run.id, run.seq)
        hists = await heat.histograms(conn, run.id)
        attempts = await queries.segments(conn, run.id)
        alerts = await queries.alerts(conn, run_uid=uid)
        past = await quiet.read(conn, run)
        steps = await queries.rollout_steps(conn, run.id)
        asked = await queries.open_requests(conn, run.id)
    charts = charts_for(names, hists, task=run.task_reward, aux=run.aux_rewards)
    organs = [organ for organ in ORGANS if any(chart.organ == organ for chart in charts)]
    begins = [[attempt.segment, attempt.first_step or 0] for attempt in attempts]
    return html.Div(
        [
            _head(house, run, asked, past),
            html.Section(verdict.banner(run, alerts, organs), id="verdict", className="verdict", **{"aria-label": "Verdict"}),
            _view(uid),
            _tools(organs, bool(steps)),
            html.Div(id="marks", hidden=True, **{"data-marks": attribute(figures.marks(alerts, past.events))}),
            *(_organ(organ, [chart for chart in charts if chart.organ == organ]) for organ in organs),
            *([] if charts else [_waiting(run)]),
            rollouts.frame(steps),
            html.Section(_events(past.events), id="events", **{"aria-label": "Events"}),
            _setup(run),
            html.Div(id="pick", className="pick", hidden=True, role="status"),
            dcc.Store(id="stamp"),
            dcc.Store(id="picked"),
            dcc.Store(id="uid", data=uid),
            dcc.Store(id="drawn", data=organs),
        ],
        className="view",
        **{"data-page": "run", "data-run": uid, "data-begins": attribute(begins), "data-metrics": attribute(names), "data-steps": attribute(steps)},
    )


def register(app: Dash, house: House) -> None:
    """What changes on the page while it is open: the verdict when the run was judged again, and the step whose rollouts are read."""

    @callback(
        app,
        Output("verdict", "children"),
        Output("marks", "data-marks"),
        Output("events", "children"),
        Output("head-quiet", "children"),
        Input("stamp", "data"),
        State("uid", "data"),
        State("drawn", "data"),
        prevent_initial_call=True,
    )
    async def judged(stamp: Any, uid: str, drawn: list[str]) -> Any:
        async with house.engine.connect() as conn:
            run = await queries.find_run(conn, uid)
            if run is None:
                return (no_update,) * 4
            alerts = await queries.alerts(conn, run_uid=uid)
            past = await quiet.read(conn, run)
        return verdict.banner(run, alerts, drawn), attribute(figures.marks(alerts, past.events)), _events(past.events), quiet.told(past)

    @callback(app, Output("samples", "children"), Input("picked", "data"), State("uid", "data"), prevent_initial_call=True)
    async def picked(wanted: dict[str, Any] | None, uid: str) -> Any:
        async with house.engine.connect() as conn:
            run = await queries.find_run(conn, uid)
            if run is None or wanted is None:
                return no_update
            steps = await queries.rollout_steps(conn, run.id)
            step = rollouts.nearest(steps, wanted.get("step"))
            samples = await queries.rollouts(conn, run.id, step) if step is not None else []
            at = await _moment(conn, run, wanted)
        return rollouts.reader(steps, step, samples, at)

    @callback(app, Output("pick", "children"), Input("picked", "data"), State("uid", "data"), prevent_initial_call=True)
    async def pointed(wanted: dict[str, Any] | None, uid: str) -> Any:
        async with house.engine.connect() as conn:
            run = await queries.find_run(conn, uid)
            at = await _moment(conn, run, wanted) if run is not None and wanted is not None else None
            if run is None or at is None:
                return []
            return rollouts.summary(at, rollouts.nearest(await queries.rollout_steps(conn, run.id), at.step))


async def _moment(conn: Connection, run: RunView, wanted: dict[str, Any]) -> rollouts.Moment | None:
    """What happened at the step that was picked; None where the page chose one by itself."""
    step, width = wanted.get("step"), wanted.get("width")
    if not isinstance(step, int):
        return None
    alerts = await queries.alerts(conn, run_uid=run.uid)
    return rollouts.moment_of(step, width if isinstance(width, int) else 1, alerts, (await quiet.read(conn, run)).events)


def _head(house: House, run: RunView, asked: Sequence[str], past: Past) -> Any:
    facts = [html.A(run.project, href=house.project(run.project))]
    if run.algorithm:
        facts.append(html.Span(run.algorithm.upper()))
    facts.append(html.Span(["step ", html.B(f"{run.last_step:,}" if run.last_step is not None else "–", id="head-step")]))
    if run.speed:
        facts.append(html.Span(_pace(run.speed)))
    facts.append(html.Span(["last batch ", html.Span(moment(run.last_seen_at, age=True), id="head-seen")]))
    facts.append(html.Span(["started ", moment(run.created_at)]))
    facts.append(html.A("compare with others", href=f"{house.base}?{urlencode({'project': run.project, 'mark': quote(run.uid, safe='')})}"))
    if run.end_reason:
        facts.append(html.Span(run.end_reason))
    return html.Div(
        [
            html.Div(
                [
                    html.H1(run.shown),
                    html.Span(STATES.get(run.state, run.state), id="head-state", className=f"state state-{run.state}"),
                    html.Span(quiet.told(past), id="head-quiet", className="head-quiet"),
                    html.Div(id="run-acts", className="run-acts", **{"data-acts": attribute(_acts(run, asked))}),
                ]
            ),
            html.Div(facts, className="facts-line dim"),
        ],
        className="head",
    )


def _pace(speed: float) -> str:
    value, unit = (1 / speed, "s per step") if speed < 1 else (speed, "steps per second")
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"


def _acts(run: RunView, asked: Sequence[str]) -> dict[str, Any]:
    """What the browser needs to let people tell the run something."""
    return {
        "name": run.name,
        "label": run.label or "",
        "outcome": run.outcome or "",
        "outcomes": OUTCOMES,
        "running": run.state == "running",
        "accepts": [kind for kind in REQUESTS if kind in run.accepts],
        "asked": list(asked),
    }


def _tools(organs: Sequence[str], has_rollouts: bool) -> Any:
    links = [html.A(TITLES[organ], href=f"#organ-{organ}", **{"data-organ": organ}) for organ in organs]
    if has_rollouts:
        links.append(html.A("Rollouts", href="#rollouts"))
    links += [html.A("Events", href="#events"), html.A("Set-up", href="#setup")]
    return html.Div(
        [
            html.Nav(links, className="jump", **{"aria-label": "On this page"}),
            html.Div(
                [
                    html.Button("Whole run", id="unzoom", className="button", hidden=True),
                    html.Div(id="find", className="find"),
                ],
                className="tools",
            ),
        ],
        className="toolbar",
    )


def _view(uid: str) -> Any:
    """How all charts are drawn, and the run as a file."""
    choices = [select("axis", "Horizontal axis", AXES), select("smooth", "Smoothing", SMOOTHING), select("newest", "Steps shown", NEWEST)]
    return html.Div([*choices, _export(uid)], className="tools viewbar")


def _export(uid: str) -> Any:
    """Every row of the run as a file. Parquet is offered where it can be written."""
    file = f"/api/v1/runs/{quote(uid, safe='')}/export"
    whole = [html.A("Every row as CSV", href=file, download="")]
    if find_spec("pyarrow") is not None:
        whole.append(html.A("Every row as Parquet", href=f"{file}?format=parquet", download=""))
    else:
        whole.append(html.P("Parquet needs pyarrow beside the collector."))
    return html.Details([html.Summary("Export", className="button"), html.Div(whole)], className="menu", id="export")


def select(name: str, label: str, options: Sequence[tuple[str, str]]) -> Any:
    """A labelled choice."""
    inner = html.Select([html.Option(text, value=value) for value, text in options], id=name)
    return html.Label([html.Span(label, className="hidden"), inner], className="field select")


def _organ(organ: str, charts: Sequence[Chart]) -> Any:
    head = html.Div([html.H2(TITLES[organ]), html.P(QUESTIONS[organ], className="dim")], className="organ-head")
    return html.Section([head, html.Div([card(chart) for chart in charts], className="grid")], id=f"organ-{organ}", **{"aria-label": TITLES[organ]})


def card(chart: Chart) -> Any:
    """The card's legend, current values and data table are filled by the driver."""
    unit = "" if chart.unit in ("-", "fraction") else chart.unit
    spec = {
        "id": chart.id,
        "kind": chart.kind,
        "title": chart.title,
        "unit": chart.unit,
        "metrics": [line.metric for line in chart.lines],
        "figure": figures.figure(chart),
    }
    return html.Article(
        [
            html.Header(
                [
                    html.H3(chart.title, title=chart.help),
                    html.Span(unit, className="unit"),
                    html.Span(className="normal"),
                    html.Div(className="legend"),
                ]
            ),
            html.Div(className="plot", role="img", **{"aria-label": chart.title}),
            html.Div(className="card-foot scroll", hidden=True, tabIndex=0, role="region", **{"aria-label": f"{chart.title} as a table"}),
        ],
        className=f"card chart{' wide' if chart.wide else ''}",
        id=f"chart-{chart.id}",
        **{"data-spec": attribute(spec)},
    )


def _waiting(run: RunView) -> Any:
    text = (
        "The run is open, and its first row has not arrived yet. Charts appear here by themselves."
        if run.state == "running"
        else "The run ended without a row."
    )
    return html.Div([html.H2("No metric yet"), html.P(text)], className="empty")


def _events(events: Sequence[EventView]) -> list[Any]:
    head = html.Div([html.H2("Events")], className="organ-head")
    if not events:
        return [
            head,
            html.P(
                [
                    "No resume, change of settings, stop or note: what detectors find is told at the top of the page. ",
                    html.Code('run.event("note", step=120, text="…")'),
                    " leaves a mark here.",
                ],
                className="dim",
            ),
        ]
    rows = [
        html.Tr(
            [
                html.Td(f"{event.step:,}" if event.step is not None else "–", className="num"),
                html.Td(event.kind),
                html.Td(rollouts.detail(event)),
                html.Td(moment(event.at), className="dim"),
            ]
        )
        for event in reversed(events[-50:])
    ]
    table = html.Table(
        [html.Thead(html.Tr([html.Th(each, scope="col") for each in ("Step", "What", "Detail", "When")])), html.Tbody(rows)], className="plain"
    )
    return [head, html.Div(table, className="scroll", tabIndex=0, role="region", **{"aria-label": "Events"})]


def _setup(run: RunView) -> Any:
    parts = [html.Div([html.H3("Configuration"), pairs(run.config)]), html.Div([html.H3("Environment"), pairs(run.environment)])]
    if run.dropped:
        parts.append(html.Div([html.H3("Shed by the client"), pairs(run.dropped)]))
    return html.Section(
        [html.Div([html.H2("Set-up")], className="organ-head"), html.Div(parts, className="columns")], id="setup", **{"aria-label": "Set-up"}
    )
