"""No callback may hold the event loop."""

from __future__ import annotations

import inspect

import pytest
from dash import Dash, Input, Output
from fastapi import FastAPI
from sqlalchemy.ext.asyncio import create_async_engine

from dashboards.app import attach
from dashboards.pages import callback


def test_every_callback_is_a_coroutine() -> None:
    app = attach(FastAPI(), create_async_engine("postgresql+asyncpg://nobody@127.0.0.1:9/none"), None)
    found = [entry["callback"] for entry in app.callback_map.values()]
    assert len(found) >= 4
    assert all(inspect.iscoroutinefunction(inspect.unwrap(each)) for each in found)


def test_a_plain_function_is_refused() -> None:
    app = Dash(__name__, server=FastAPI())
    with pytest.raises(TypeError, match="coroutine"):
        callback(app, Output("a", "children"), Input("b", "data"))(lambda data: data)  # type: ignore[type-var]


def test_a_deep_link_is_whole_on_the_first_request_and_pages_move_with_their_base() -> None:
    from starlette.testclient import TestClient

    class Moved:
        url_base = "/vitals"

    api = FastAPI()
    attach(api, create_async_engine("postgresql+asyncpg://nobody@127.0.0.1:9/none"), Moved())
    with TestClient(api) as client:
        page = client.get("/vitals/run/x").text
        assert '<meta name="vitals-base" content="/vitals/">' in page
        assert "/vitals/assets/vitals.css" in page and "/vitals/assets/a_core.js" in page and "plotly-cartesian" not in page
        assert client.get("/vitals/plotly.js").status_code == 200
        assert client.get("/api/v1/nope").status_code == 404
