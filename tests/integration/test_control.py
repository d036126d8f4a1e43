"""Requests and labels: asked on a page, obeyed in a training loop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from monitor.api import app as application
from monitor.settings import load

START: dict[str, Any] = {"run": "r", "attempt": "a", "project": "p", "name": "n", "started_at": 1.7e9, "accepts": ["stop", "checkpoint"]}


@pytest.fixture
async def client(engine: AsyncEngine) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(application.build(load(), engine))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1/api/v1/runs") as client:
        (await client.post("http://127.0.0.1/api/v1/runs", json=START)).raise_for_status()
        yield client


async def send(client: httpx.AsyncClient, *events: dict[str, Any]) -> list[str]:
    answer = await client.post("/r/batches", json={"attempt": "a", "seq": 1, "events": events})
    return list(answer.json()["requests"])


async def test_a_request_stays_open_until_the_run_obeyed(client: httpx.AsyncClient) -> None:
    assert await send(client) == []
    assert (await client.post("/r/requests", json={"kind": "checkpoint"})).json() == {"requests": ["checkpoint"]}
    assert (await client.post("/r/requests", json={"kind": "stop"})).json() == {"requests": ["checkpoint", "stop"]}
    assert (await client.post("/r/requests", json={"kind": "stop"})).json() == {"requests": ["checkpoint", "stop"]}
    assert await send(client) == ["checkpoint", "stop"]
    # The run's clock may be far behind ours.
    assert await send(client, {"at": 1.0, "kind": "request_done", "detail": {"request": "checkpoint"}}) == ["stop"]
    assert await send(client, {"at": 1.0, "kind": "request_done", "detail": {}}) == ["stop"]
    assert await send(client, {"at": 2.0, "kind": "request_done", "detail": {"request": "stop"}}) == []
    assert (await client.post("/r/requests", json={"kind": "stop"})).json() == {"requests": ["stop"]}


@pytest.mark.parametrize(("kind", "reason"), [("pause", "accepts only checkpoint, stop"), ("explode", "must be one of"), (5, "str")])
async def test_a_run_is_asked_only_for_what_it_accepts(client: httpx.AsyncClient, kind: Any, reason: str) -> None:
    answer = await client.post("/r/requests", json={"kind": kind})
    assert (answer.status_code, answer.json()["field"]) == (422, "kind")
    assert reason in answer.json()["error"]


async def test_nobody_asks_a_run_that_is_not_there_or_over(client: httpx.AsyncClient) -> None:
    assert (await client.post("/nobody/requests", json={"kind": "stop"})).status_code == 404
    await client.post("/r/finish", json={"attempt": "a", "state": "crashed", "at": 1.7e9})
    answer = await client.post("/r/requests", json={"kind": "stop"})
    assert (answer.status_code, answer.json()["error"]) == (422, "run: is crashed, only a running run can be asked for something.")


async def test_an_outcome_is_said_and_taken_back(client: httpx.AsyncClient) -> None:
    for outcome in ("hacked", None):
        assert (await client.post("/r/outcome", json={"outcome": outcome})).json() == {"outcome": outcome}
        assert (await client.get("/r")).json()["outcome"] == outcome
    answer = await client.post("/r/outcome", json={"outcome": "great"})
    assert (answer.status_code, answer.json()["field"]) == (422, "outcome")
    assert (await client.post("/nobody/outcome", json={"outcome": "healthy"})).status_code == 404


async def test_a_label_is_written_and_wiped_off(client: httpx.AsyncClient) -> None:
    for label in ("healthy baseline", None):
        assert (await client.post("/r/label", json={"label": label})).json() == {"label": label}
        assert (await client.get("/r")).json()["name"] == (label or START["name"])
    assert (await client.post("/r/label", json={"label": ""})).status_code == 422
    assert (await client.post("/nobody/label", json={"label": "x"})).status_code == 404
