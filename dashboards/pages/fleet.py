"""``/``: which runs are well? The browser fills the table from ``/api/v1/runs``, so that five hundred rows cost no component tree."""

from __future__ import annotations

from typing import Any

from dash import html

from dashboards.pages import House, Query
from dashboards.words import attribute
from monitor.store import queries

START = """import monitor.client
run = monitor.client.start("my-project", "first-run", config={"lr": 1e-6})
run.log({"reward.task.mean": 0.42, "entropy.mean": 1.31}, step=0)"""
"""What an empty fleet teaches."""


async def view(house: House, parts: list[str], query: Query) -> Any:
    """The frame; the filters live in the address."""
    async with house.engine.connect() as conn:
        projects = await queries.projects(conn)
    return html.Div(
        [
            html.Div([html.H1("Fleet"), html.P(id="fleet-summary", className="dim", role="status")], className="head"),
            html.Div(id="fleet", **{"data-projects": attribute(projects), "data-start": START}),
        ],
        className="view",
        **{"data-page": "fleet"},
    )
