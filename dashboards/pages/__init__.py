"""One module per page; :func:`register` wires them to the address bar. Importing a module does nothing."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast
from urllib.parse import parse_qsl, quote, unquote

from dash import Dash, Input, Output, State, html

from monitor.store.queries import Database


@dataclass(frozen=True, slots=True)
class House:
    """What every page needs: the database and the path that the pages live under, with a slash at both ends."""

    engine: Database
    base: str

    def run(self, uid: str) -> str:
        """The address of a run's page."""
        return f"{self.base}run/{quote(uid, safe='')}"


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
    from dashboards.pages import alerts, fleet, run

    views: dict[str, View] = {"": fleet.view, "run": run.view, "alerts": alerts.view}

    @callback(app, Output("page", "children"), Input("url", "pathname"), Input("redraw", "data"), State("url", "search"))
    async def show(pathname: str | None, redraw: Any, search: str | None) -> Any:
        parts = [unquote(part) for part in (pathname or house.base).removeprefix(house.base).strip("/").split("/")]
        view = views.get(parts[0])
        if view is None:
            return lost(house, pathname or "")
        return await view(house, parts[1:], dict(parse_qsl((search or "").lstrip("?"))))

    for page in (run, alerts):
        page.register(app, house)


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
