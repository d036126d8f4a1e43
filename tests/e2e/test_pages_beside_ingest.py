"""Whatever pages wait for, batches do not wait for pages."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import pytest
from sqlalchemy import text

from bench.pages import NAMES, open_page, send
from bench.rig import Rig, rig
from monitor.store import database
from monitor.wire import Batch, Row, to_json

TABS = 30
"""More than a process has connections for pages."""


@pytest.fixture(scope="module")
def site() -> Iterator[Rig]:
    with rig(durable=False, collector=False) as found:
        found.start("pages", ["-m", "monitor.cli", "serve", "--port", str(found.port)])
        found.until(found.answers, "the pages to answer")
        send(found, "long", 6000)
        send(found, "other", 6000)
        send(found, "written", 1, ended=False)
        yield found


@contextmanager
def locked(found: Rig, table: str) -> Iterator[None]:
    """Nobody reads ``table`` meanwhile."""
    held, release = threading.Event(), threading.Event()

    async def hold() -> None:
        async with database.opened(found.server.url) as engine, engine.begin() as conn:
            await conn.execute(text(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"))
            held.set()
            await asyncio.to_thread(release.wait, 60)

    thread = threading.Thread(target=lambda: asyncio.run(hold()))
    thread.start()
    try:
        assert held.wait(30)
        yield
    finally:
        release.set()
        thread.join()


def test_a_batch_is_stored_while_more_pages_wait_for_the_database_than_have_connections(site: Rig) -> None:
    def look(number: int) -> int:
        asked = {"run": "long,other", "metrics": ",".join(NAMES), "since": f"tab {number}"}
        return httpx.get(f"{site.url}/api/v1/live", params=asked, timeout=60).status_code

    with ThreadPoolExecutor(TABS) as pool:
        with locked(site, "rollup"):
            tabs = [pool.submit(look, number) for number in range(TABS)]
            waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = 'rlvitals pages'"
            site.until(lambda: site.query(waiting)[0][0] >= 10, "pages to wait")
            rows = [Row(step, time.time(), {"loss": 1.0}) for step in (1, 2)]
            answer = httpx.post(f"{site.url}/api/v1/runs/written/batches", content=to_json(Batch("a", 2, rows)), timeout=8)
            assert (answer.status_code, answer.json()["accepted"]) == (200, 2)
            assert not any(tab.done() for tab in tabs)
        assert {tab.result() for tab in tabs} == {200}


def test_what_the_bench_asks_for_is_what_makes_a_page(site: Rig) -> None:
    with httpx.Client(base_url=site.url, timeout=60) as client:
        open_page(client, "/run/long", "", ["long"])
        open_page(client, "/compare", "?runs=long,other", ["long", "other"])
