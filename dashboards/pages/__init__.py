"""One module per page; :func:`register` wires them to the address bar. Importing a module does nothing."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast
from urllib.parse import parse_qsl, quote, unquote

from dash import Dash, Input, Output, html

from monitor.settings import Settings
from monitor.store import incidents, projects, queries
from monitor.store.queries import Database


@dataclass(frozen=True, slots=True)
class House:
    """What every page needs: the database, the path that the pages live under, with a slash at both ends, and the settings."""

    engine: Database
    base: str
    settings: Settings | None = None

    def run(self, uid: str) -> str:
        """The address of a run's page."""
        return f"{self.base}run/{quote(uid, safe='')}"

    def project(self, name: str) -> str:
        """The address of a project's history."""
        return f"{self.base}project/{quote(name, safe='')}"

    def incident(self, uid: object) -> str:
        """The address of an incident's page."""
        return f"{self.base}incident/{uid}"


log = logging.getLogger(__name__)

Query = dict[str, str]
View = Callable[[House, list[str], Query], Awaitable[Any]]
Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Any]])


def callback(app: Dash, *wiring: Any, **options: Any) -> Callable[[Handler], Handler]:
    """Dash's callback for coroutines only: a plain function would run on the event loop and hold up ingest. Raises TypeError for one."""

    def register_one(handler: Handler) -> Handler:
        if not inspect.iscoroutinefunction(handler):
            raise TypeError(f"the callback {handler!r} must be a coroutine function")
        return cast(Handler, app.callback(*wiring, **options)(handler))

    return register_one


def register(app: Dash, house: House) -> None:
    """Adds the router and every page's callbacks."""
    from dashboards.pages import compare, deliveries, inbox, incident, run, settings

    views = _views()

    @callback(app, Output("page", "children"), Input("url", "pathname"), Input("url", "search"), Input("redraw", "data"))
    async def show(pathname: str | None, search: str | None, redraw: Any) -> Any:
        parts = _parts(house, pathname or house.base)
        view = views.get(parts[0])
        if view is None:
            return lost(house, pathname or "")
        try:
            return await view(house, parts[1:], dict(parse_qsl((search or "").lstrip("?"))))
        except Exception:
            log.exception("the page %s could not be made", pathname)
            return broken()

    for page in (run, inbox, incident, compare, deliveries, settings):
        page.register(app, house)


def _views() -> dict[str, View]:
    from dashboards.pages import compare, deliveries, fleet, inbox, incident, project, run, settings

    return {
        "": fleet.view,
        "run": run.view,
        "project": project.view,
        "alerts": inbox.view,
        "incident": incident.view,
        "compare": compare.view,
        "deliveries": deliveries.view,
        "settings": settings.view,
    }


def _parts(house: House, path: str) -> list[str]:
    return [unquote(part) for part in path.removeprefix(house.base).strip("/").split("/")]


async def exists(house: House, path: str) -> bool:
    """Whether an address names a page, and the run, project or incident that it names is here. True where the database cannot say."""
    first, *rest = _parts(house, path)
    if first not in _views():
        return False
    if first not in ("run", "incident", "project"):
        return True
    try:
        async with house.engine.connect() as conn:
            if first == "project":
                return await projects.exists(conn, "/".join(rest))
            return bool(await queries.pulses(conn, rest[:1]) if first == "run" else await incidents.known(conn, "".join(rest[:1])))
    except Exception:
        log.warning("whether %s names anything could not be read", path)
        return True


def broken() -> Any:
    """The page where ours could not be made, most often because the database is away."""
    return html.Div(
        [
            html.H1("This page could not be made"),
            html.P("Most often the database does not answer; the collector's log says more. Nothing that runs have sent is lost by this."),
            html.P([html.A("Try again", href=""), " in a moment."]),
        ],
        className="empty",
        **{"data-page": "broken"},
    )


def no_run(house: House, uid: str, heading: Any = html.H2) -> Any:
    """What stands where a run was asked for that is not there."""
    return _missing("run", uid, heading, "Go to the fleet", house.base, " to see every run.")


def no_incident(house: House, uid: str, heading: Any = html.H2) -> Any:
    """What stands where an incident was asked for that is not there."""
    return _missing("incident", uid, heading, "Go to the alerts", f"{house.base}alerts?state=any", " to see every incident.")


def _missing(kind: str, name: str, heading: Any, way: str, href: str, why: str) -> Any:
    said = html.P([f"This collector holds no {kind} ", html.Code(name), "."] if name else f"The address names no {kind}.")
    return html.Div([heading(f"There is no such {kind}"), said, html.P([html.A(way, href=href), why])], className="empty")


def lost(house: House, what: str) -> Any:
    """The page for an address that names nothing."""
    return html.Div(
        [
            html.H1("Nothing lives here"),
            html.P(["There is no page ", html.Code(what), ". "]),
            html.P([html.A("Go to the fleet", href=house.base), " to see every run."]),
        ],
        className="empty",
        **{"data-page": "lost"},
    )
