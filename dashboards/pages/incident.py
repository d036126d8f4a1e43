"""``/incident/UID``: what began it and what followed, what proves it, who was told, who is on it, and what can be done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from dash import Dash, Input, Output, State, dcc, html, no_update

from dashboards import acts, cascade, chronicle, figures, quiet, rollouts
from dashboards.charts import Chart, charts_for
from dashboards.pages import House, Query, callback, no_incident
from dashboards.pages.run import AXES, SMOOTHING, card, select
from dashboards.verdict import onset
from dashboards.words import STATES, attribute, moment, pill
from monitor.store import heat, incidents, queries, series
from monitor.store.incidents import Incident, Note
from monitor.store.queries import AlertView, Connection, EventView, RunView
from monitor.wire import OUTCOMES

MOST_CHARTS = 8


@dataclass(frozen=True, slots=True)
class Story:
    """All that is stored about one incident. ``alerts`` are in the order in which they began."""

    incident: Incident
    run: RunView
    alerts: list[AlertView]
    notes: list[Note]
    events: tuple[EventView, ...]
    silences: list[dict[str, Any]]


async def view(house: House, parts: list[str], query: Query) -> Any:
    """The page of the incident named by the first part of the path."""
    async with house.engine.connect() as conn:
        stamp = await queries.alert_stamp(conn)
        uid = parts[0] if parts else ""
        story = await _read(conn, uid)
        if story is None:
            return html.Div(no_incident(house, uid, html.H1), className="view", **{"data-page": "lost"})
        run = story.run
        names = await series.metric_names(conn, run.id, run.seq)
        hists = await heat.histograms(conn, run.id)
        attempts = await queries.segments(conn, run.id)
        steps = await queries.rollout_steps(conn, run.id)
    shown = cascade.span(story.alerts, run.last_step)
    raised = min(alert.opened_step for alert in story.alerts)
    return html.Div(
        [
            html.Div(_head(house, story), id="incident-head", className="head"),
            html.Div(
                [
                    html.Section(id="acts", className="card acts", **{"aria-label": "What to do"}),
                    html.Div(
                        [
                            html.Section(
                                [html.H2("In the order it began"), html.Div(cascade.timeline(story.alerts, run.last_step), id="incident-cascade")],
                                id="timeline",
                                className="card timeline",
                                **{"aria-label": "Timeline"},
                            ),
                            *_charts(charts_for(names, hists, task=run.task_reward, aux=run.aux_rewards), story),
                            _samples(steps, min(onset(alert) for alert in story.alerts), raised),
                        ],
                        className="story",
                    ),
                    html.Div(
                        [
                            html.Section(
                                chronicle.told(house, story.alerts), id="incident-told", className="card part", **{"aria-label": "Who was told"}
                            ),
                            html.Section(
                                chronicle.log(story.alerts, story.notes), id="incident-log", className="card part", **{"aria-label": "History"}
                            ),
                        ],
                        className="record",
                    ),
                ],
                className="incident",
            ),
            html.Div(id="marks", hidden=True, **{"data-marks": attribute(figures.marks(story.alerts, story.events))}),
            html.Div(id="incident-now", hidden=True, **{"data-now": _now(story)}),
            dcc.Store(id="incident-stamp"),
            dcc.Store(id="incident-uid", data=str(story.incident.uid)),
            dcc.Store(id="picked"),
            dcc.Store(id="uid", data=run.uid),
        ],
        className="view",
        **{
            "data-page": "incident",
            "data-stamp": stamp,
            "data-run": run.uid,
            "data-begins": attribute([[attempt.segment, attempt.first_step or 0] for attempt in attempts]),
            "data-metrics": attribute(names),
            "data-steps": attribute(steps),
            "data-step": attribute(_showing(steps, raised)),
            "data-window": attribute([shown.first, shown.last]),
            "data-scopes": attribute(acts.scopes(story.incident)),
            "data-outcomes": attribute(OUTCOMES),
        },
    )


def register(app: Dash, house: House) -> None:
    """Everything that may change is read again when the pulse says that something did."""

    @callback(
        app,
        Output("incident-head", "children"),
        Output("incident-cascade", "children"),
        Output("incident-told", "children"),
        Output("incident-log", "children"),
        Output("marks", "data-marks", allow_duplicate=True),
        Output("incident-now", "data-now"),
        Input("incident-stamp", "data"),
        State("incident-uid", "data"),
        prevent_initial_call=True,
    )
    async def changed(stamp: Any, uid: str) -> Any:
        async with house.engine.connect() as conn:
            story = await _read(conn, uid)
        if story is None:
            return (no_update,) * 6
        return (
            _head(house, story),
            cascade.timeline(story.alerts, story.run.last_step),
            chronicle.told(house, story.alerts),
            chronicle.log(story.alerts, story.notes),
            attribute(figures.marks(story.alerts, story.events)),
            _now(story),
        )


async def _read(conn: Connection, text: str) -> Story | None:
    incident = await incidents.known(conn, text)
    if incident is None:
        return None
    run = await queries.find_run(conn, incident.run)
    alerts = await queries.alerts(conn, incident_uid=incident.uid)
    if run is None or not alerts:
        return None
    past = await quiet.read(conn, run)
    ordered = sorted(alerts, key=lambda alert: (onset(alert), alert.id))
    return Story(incident, run, ordered, await incidents.notes(conn, incident.uid), past.events, await incidents.silences(conn))


def _now(story: Story) -> str:
    return attribute(acts.now(story.incident, story.run, story.silences))


def _head(house: House, story: Story) -> list[Any]:
    incident, run = story.incident, story.run
    began = min(onset(alert) for alert in story.alerts)
    facts = [
        html.A(incident.run_name, href=f"{house.run(run.uid)}"),
        html.A(incident.project, href=f"{house.base}?{urlencode({'project': incident.project})}"),
        html.Span(STATES.get(run.state, run.state)),
        html.Span(["since ", html.B(f"step {began:,}")]),
        html.Span(["raised ", moment(incident.opened_at)]),
    ]
    if incident.resolved_at is not None:
        over = f"step {incident.resolved_step:,}" if incident.resolved_step is not None else "its end"
        facts.append(html.Span(["over at ", html.B(over)]))
    return [
        html.Div(
            [pill(incident.severity), html.H1(incident.lead), html.Span(incident.state.capitalize(), className=f"state state-{incident.state}")]
        ),
        html.Div(facts, className="facts-line dim"),
    ]


def _charts(charts: Sequence[Chart], story: Story) -> list[Any]:
    """The toolbar and the charts that the findings speak of, in the order of the timeline; the task reward is always among them."""
    links = [("#timeline", "Timeline"), ("#charts", "Charts"), ("#rollouts", "Rollouts"), ("#incident-told", "Told"), ("#incident-log", "History")]
    tools = [
        select("axis", "Horizontal axis", AXES),
        select("smooth", "Smoothing", SMOOTHING),
        html.Button("Whole run", id="unzoom", className="button", hidden=True),
    ]
    chosen = _chosen(charts, story)
    note = "What the findings speak of, first mover first."
    if any(alert.severity == "critical" for alert in story.alerts):
        note += " The dashed upright line: where the first finding that became critical was made."
    none: Any = html.P("None of the metrics that these findings speak of is drawn.", className="dim")
    return [
        html.Div(
            [
                html.Nav([html.A(text, href=href) for href, text in links], className="jump", **{"aria-label": "On this page"}),
                html.Div(tools, className="tools"),
            ],
            className="toolbar",
        ),
        html.Section(
            [
                html.Div([html.H2("Around the onset"), html.P(note, className="dim")], className="organ-head"),
                html.Div([card(chart) for chart in chosen], className="grid") if chosen else none,
            ],
            id="charts",
            **{"aria-label": "Charts"},
        ),
    ]


def _chosen(charts: Sequence[Chart], story: Story) -> list[Chart]:
    findings: list[Mapping[str, Any]] = [place.alert.finding for place in cascade.arranged(story.alerts)]
    wanted = [str(finding.get("metric")) for finding in findings]
    wanted += [name for finding in findings[:1] for name in finding.get("moved") or ()]
    wanted = list(dict.fromkeys([*wanted[: MOST_CHARTS - 1], story.run.task_reward or "reward.task.mean", *wanted]))
    holding = {line.metric: chart for chart in reversed(charts) for line in chart.lines if chart.kind != "heat"}
    found = dict.fromkeys(holding[name].id for name in wanted if name in holding)
    by_id = {chart.id: chart for chart in charts}
    return [by_id[each] for each in found][:MOST_CHARTS]


def _showing(steps: Sequence[int], raised: int) -> int | None:
    """The first step with samples from ``raised`` on, else the last one before."""
    return next((step for step in steps if step >= raised), rollouts.nearest(steps, raised))


def _samples(steps: Sequence[int], began: int, raised: int) -> Any:
    """What the policy wrote when the alarm was raised, and a way to what it wrote before."""
    head: list[Any] = [html.H2("Rollouts that show it")]
    ways = {"Before it began": next((step for step in reversed(steps) if step < began), None), "Raised": _showing(steps, raised)}
    if steps and steps[-1] not in ways.values():
        ways["Newest"] = steps[-1]
    buttons = [
        html.Button([text, html.Span(f" step {step:,}", className="dim")], className="chip", **{"data-pick": str(step)})
        for text, step in ways.items()
        if step is not None
    ]
    return html.Section(
        [html.Div([*head, html.Div(buttons, className="chips")], className="organ-head"), html.Div(rollouts.waiting(steps), id="samples")],
        id="rollouts",
        **{"aria-label": "Rollouts"},
    )
