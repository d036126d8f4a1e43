"""``/alerts``: incidents that wait for somebody, the browser's list of ``/api/v1/incidents``; ``?view=single`` shows alert by alert instead."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from dash import Dash, dcc, html

from dashboards.pages import House, Query, alerts, no_run
from dashboards.words import attribute
from monitor.store import incidents, queries


async def view(house: House, parts: list[str], query: Query) -> Any:
    """The frame; the filters live in the address."""
    if query.get("view") == "single":
        return await alerts.view(house, parts, query)
    async with house.engine.connect() as conn:
        stamp = await queries.alert_stamp(conn)
        projects = await queries.projects(conn)
        detectors = await incidents.detectors(conn)
        run = query.get("run")
        missing = bool(run) and not await queries.pulses(conn, [run or ""])
    single = "?" + urlencode([("view", "single"), *((key, query[key]) for key in ("run", "q", "severity") if key in query)])
    title = html.Div([html.H1("Alerts"), dcc.Link("Alert by alert", href=single, className="small")])
    body: Any = (
        no_run(house, run or "")
        if missing
        else html.Div(id="inbox", **{"data-projects": attribute(projects), "data-detectors": attribute(detectors)})
    )
    return html.Div(
        [html.Div([title, html.P("What is wrong, one line for each story.", className="dim")], className="head"), body],
        className="view",
        **{"data-page": "no-run" if missing else "inbox", "data-stamp": stamp},
    )


def register(app: Dash, house: House) -> None:
    """The list of single alerts has callbacks; the inbox needs none."""
    alerts.register(app, house)
