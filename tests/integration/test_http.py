"""The collector on a real socket: large bodies, arbitrary requests, a database that is killed under it."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import signal
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from serving import serving
from sqlalchemy import select

from monitor.store import database, embedded
from monitor.store.tables import point, run

START: dict[str, Any] = {"run": "r", "attempt": "a", "project": "p", "name": "first", "started_at": 1.7e9}


def test_a_large_body_is_answered_before_the_connection_closes(database_url: str) -> None:
    with serving(database_url) as address:
        for framing in ("length", "chunks"):
            connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=20)
            body: Any = b" " * (10 * 2**20) if framing == "length" else iter([b" " * 2**20] * 10)
            connection.request("POST", "/api/v1/runs/r/batches", body, encode_chunked=framing == "chunks", headers=_chunked(framing))
            answer = connection.getresponse()
            assert answer.status == 413
            assert "8 MiB" in json.load(answer)["error"]
            connection.close()
        assert httpx.get(f"{address}/healthz").json()["status"] == "ok"


def _chunked(framing: str) -> dict[str, str]:
    return {"Transfer-Encoding": "chunked"} if framing == "chunks" else {}


def test_a_sender_that_hangs_up_leaves_nothing(database_url: str) -> None:
    with serving(database_url) as address:
        httpx.post(f"{address}/api/v1/runs", json=START).raise_for_status()
        connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=20)
        connection.putrequest("POST", "/api/v1/runs/r/batches")
        connection.putheader("Content-Length", "1000")
        connection.endheaders(b'{"attempt": "a", "seq": 1, "rows": [')
        connection.close()
        batch = {"attempt": "a", "seq": 1, "rows": [{"step": 1, "at": 1.0, "values": {"a": 1}}]}
        assert httpx.post(f"{address}/api/v1/runs/r/batches", json=batch).json()["accepted"] == 1


def test_no_request_that_fits_the_description_breaks_the_collector(database_url: str) -> None:
    """Every operation, with requests made from its description: no 5xx, and every answer as described."""
    with serving(database_url) as address:
        httpx.post(f"{address}/api/v1/runs", json=START).raise_for_status()
        schema = schemathesis.openapi.from_url(f"{address}/api/v1/openapi.json")
        operations = [result.ok() for result in schema.get_all_operations()]
        assert {"/api/v1/runs", "/api/v1/runs/{run}/batches", "/api/v1/runs/{run}/finish"} <= {one.path for one in operations}
        for operation in operations:
            _try(operation)


def _try(operation: Any) -> None:
    @settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy())
    def check(case: Any) -> None:
        answer = case.call()
        assert answer.status_code < 500, (case, answer.text)
        case.validate_response(answer, checks=[schemathesis.checks.CHECKS.get_one("response_schema_conformance")])

    check()


async def test_no_acknowledged_row_is_lost_when_postgres_is_killed(roomy_tmp: Path) -> None:
    server = embedded.start(roomy_tmp)
    try:
        await database.migrate(server.url)
        with serving(server.url) as address:
            acknowledged: set[int] = set()
            done = asyncio.Event()

            async def post(client: httpx.AsyncClient, first: int) -> None:
                """Sends until told to stop, each batch again until it is acknowledged, as the SDK does."""
                step = first
                while not done.is_set():
                    batch = {"attempt": "a", "seq": 1, "rows": [{"step": step + i, "at": 1.0, "values": {"x": step + i}} for i in range(5)]}
                    with contextlib.suppress(httpx.TransportError):
                        answer = await client.post(f"{address}/api/v1/runs/r/batches", json=batch)
                        assert answer.status_code in (200, 503), answer.text
                        if answer.status_code == 200:
                            assert answer.json()["accepted"] + answer.json()["duplicate"] == 5
                            acknowledged.update(range(step, step + 5))
                            step += 20
                    await asyncio.sleep(0)

            async with httpx.AsyncClient(timeout=20) as client:
                (await client.post(f"{address}/api/v1/runs", json=START)).raise_for_status()
                posters = [asyncio.create_task(post(client, 5 * i)) for i in range(4)]
                for _ in range(2):
                    before = len(acknowledged)
                    await _until(lambda before=before: len(acknowledged) > before + 200)
                    os.kill(server.pid, signal.SIGKILL)
                    await asyncio.to_thread(server.process.wait)  # type: ignore[union-attr]
                    server = await asyncio.to_thread(embedded.start, roomy_tmp)
                before = len(acknowledged)
                await _until(lambda: len(acknowledged) > before + 200)
                done.set()
                await asyncio.gather(*posters)
        async with database.opened(server.url) as engine, engine.connect() as connection:
            rows = list(await connection.execute(select(point.c.seq, point.c.step, point.c.vals).order_by(point.c.seq)))
            next_seq = (await connection.scalars(select(run.c.next_seq))).one()
        assert acknowledged <= {row.step for row in rows}
        assert [row.seq for row in rows] == list(range(1, next_seq))
        assert all(row.vals == [row.step] for row in rows)
    finally:
        server.stop()


async def _until(condition: Any) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("token", [None, "correct-horse-battery"])
def test_the_pages_address_is_told_and_the_token_asked_for(database_url: str, token: str | None) -> None:
    with serving(database_url, token=token) as address:
        answer = httpx.post(f"{address}/api/v1/runs", json=START)
        assert answer.status_code == (200 if token is None else 401)
        answer = httpx.post(f"{address}/api/v1/runs", json=START, headers={"Authorization": "Bearer correct-horse-battery"})
        assert answer.json()["url"] == f"{address}/run/r"
