"""The pages, inside the collector's own FastAPI app: one process, one port, nothing fetched from elsewhere.

Traps of Dash's FastAPI backend that this module steps around: a synchronous callback would hold the event loop and with it ingest, so every
callback is ``async`` (a test insists); the first request may be a deep link, so the assets are set up here and not on a first visit to ``/``;
unknown paths under ``/api`` must not be answered with a page, so they get their own 404; and Dash's catch-all would answer 200 to every address.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import plotly
from dash import Dash, dcc, html
from dash.backends._fastapi import reset_current_request, set_current_request
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import FileResponse, HTMLResponse

from dashboards import pages
from dashboards.pages import House
from dashboards.words import icon
from monitor.settings import Settings
from monitor.store.queries import Database

ASSETS = Path(__file__).parent / "assets"
CARTESIAN = ASSETS / "plotly-cartesian.min.js"

_INDEX = """<!DOCTYPE html>
<html lang="en">
<head>
{%metas%}
<title>{%title%}</title>
<meta name="vitals-base" content="BASE">
<meta name="vitals-plotly" content="PLOTLY">
<link rel="icon" href="data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32'%3E%3Crect width='32' height='32' rx='8'
 fill='%232563eb'/%3E%3Cpath d='M5 17h6l3-8 5 15 3-7h5' fill='none' stroke='white' stroke-width='2.6' stroke-linejoin='round'
 stroke-linecap='round'/%3E%3C/svg%3E">
<script>
(function () {
  var chosen = null;
  try { chosen = localStorage.getItem("vitals-theme"); } catch (e) { /* storage may be forbidden */ }
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
})();
</script>
{%css%}
</head>
<body>
<a class="skip" href="#page">Skip to content</a>
{%app_entry%}
<footer>{%config%}{%scripts%}{%renderer%}</footer>
</body>
</html>
"""


def attach(api: FastAPI, engine: Database, settings: Any) -> Dash:
    """Adds every page to ``api``, to be called after its own routes are in place. ``settings.url_base`` (default ``/``) is where pages live."""
    base = "/" + str(getattr(settings, "url_base", "") or "").strip("/") + "/"
    base = base.replace("//", "/")
    house = House(engine, base, settings if isinstance(settings, Settings) else None)
    _own_routes(api, base)
    app = Dash(
        __name__,
        server=api,
        url_base_pathname=base,
        assets_folder=str(ASSETS),
        assets_ignore=r"plotly-.*",
        title="rlvitals",
        update_title="",
        suppress_callback_exceptions=True,
        index_string=_index(base),
        meta_tags=[
            {"name": "viewport", "content": "width=device-width, initial-scale=1"},
            {"name": "color-scheme", "content": "light dark"},
            {"name": "description", "content": "Training health of reinforcement learning on language models"},
        ],
    )
    app.layout = shell(base)
    pages.register(app, house)
    app._setup_server()
    _documents(api, app, house)
    return app


def _documents(api: FastAPI, app: Dash, house: House) -> None:
    """Every page's document is the same; its status says whether the address names anything. Stands before Dash's own route for the rest."""

    @api.get(f"{house.base}{{rest:path}}", include_in_schema=False)
    async def document(request: Request, rest: str) -> HTMLResponse:
        status = 200 if await pages.exists(house, request.url.path) else 404
        token = set_current_request(request)
        try:
            return HTMLResponse(_early(app.index(), house, request.url.path), status)
        finally:
            reset_current_request(token)


def _early(document: str, house: House, path: str) -> str:
    """The document of a page with charts asks for Plotly itself: it is there when they are."""
    if not path.startswith((f"{house.base}run/", f"{house.base}compare")):
        return document
    found = re.search('name="vitals-plotly" content="([^"]+)"', document)
    return document.replace("</head>", f'<script id="plotly" async src="{found[1]}"></script>\n</head>', 1) if found else document


def _own_routes(api: FastAPI, base: str) -> None:
    script = CARTESIAN if CARTESIAN.exists() else Path(plotly.__file__).parent / "package_data" / "plotly.min.js"

    @api.get(f"{base}plotly.js", include_in_schema=False)
    async def plotly_bundle() -> FileResponse:
        return FileResponse(script, media_type="text/javascript", headers={"Cache-Control": "public, max-age=604800"})

    @api.api_route("/api/{rest:path}", methods=["GET", "POST", "PUT", "PATCH", "DELETE"], include_in_schema=False)
    async def nothing_here(rest: str) -> None:
        raise HTTPException(404, f"There is nothing at /api/{rest[:80]}; /api/v1/openapi.json lists what there is.")


def _index(base: str) -> str:
    version = re.sub(r"[^0-9.]", "", plotly.__version__)
    page = _INDEX.replace("BASE", base).replace("PLOTLY", f"{base}plotly.js?v={version}{'c' if CARTESIAN.exists() else ''}")
    return page.replace("\n fill=", " fill=").replace("\n stroke-linecap=", " stroke-linecap=")


def shell(base: str) -> Any:
    """What every page shares: the bar on top with navigation, the live state and the theme switch; the page below it."""
    links = [
        (name, name.capitalize(), base if name == "fleet" else f"{base}{name}") for name in ("fleet", "alerts", "compare", "deliveries", "settings")
    ]
    bar = html.Header(
        [
            dcc.Link([html.Span(className="mark", **{"aria-hidden": "true"}), "rlvitals"], href=base, className="brand"),
            html.Nav(
                [
                    dcc.Link(
                        [
                            icon(name),
                            html.Span(label),
                            *([html.Span(id="open-incidents", className="count", hidden=True)] if name == "alerts" else []),
                        ],
                        href=href,
                    )
                    for name, label, href in links
                ],
                **{"aria-label": "Pages"},
            ),
            html.Div(id="live", className="live", role="status", **{"aria-live": "off"}),
            html.Button(icon("keys"), id="help-button", className="quiet", title="Keyboard (?)", **{"aria-label": "Keyboard shortcuts"}),
            html.Button(icon("theme"), id="theme-button", className="quiet", title="Theme", **{"aria-label": "Theme: system"}),
        ],
        className="bar",
    )
    return html.Div(
        [
            dcc.Location(id="url", refresh="callback-nav"),
            dcc.Store(id="redraw"),
            bar,
            html.Div(id="channel-trouble", role="status"),
            html.Main(html.Div("Loading", className="loading"), id="page", tabIndex=-1),
            html.Div(id="toast", className="toast", role="status", **{"aria-live": "polite"}),
        ],
        id="shell",
    )
