"""Answers given again: the same ones for a moment, none from before an act."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import httpx
from fastapi import FastAPI, Request, Response

from monitor.api.repeats import Repeated, Repeats


class Site:
    """An application with a number that ``POST /act`` raises and ``GET /number`` tells, after ``gate`` opens."""

    def __init__(self, seconds: float = 60.0) -> None:
        self.number, self.read = 0, 0
        self.reading, self.gate = asyncio.Event(), asyncio.Event()
        self.gate.set()
        app, repeats = FastAPI(), Repeats()
        app.add_middleware(Repeated, repeats=repeats)

        @app.get("/number")
        async def number(request: Request) -> Response:
            self.read += 1
            self.reading.set()
            told = str(self.number)
            await self.gate.wait()
            return repeats.keep(request, Response(told), time.monotonic() + seconds)

        @app.post("/api/v1/act")
        @app.post("/api/v1/runs/r/batches")
        async def act() -> None:
            self.number += 1

        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://here")

    async def ask(self, **query: Any) -> str:
        return (await self.client.get("/number", params=query, headers={"Accept-Encoding": "identity"})).text


async def test_the_same_address_gets_the_same_answer_and_another_its_own() -> None:
    site = Site()
    assert [await site.ask(a=1), await site.ask(a=1), await site.ask(a=2)] == ["0"] * 3
    assert site.read == 2
    assert (await site.client.get("/number", params={"a": 1}, headers={"Accept-Encoding": "gzip"})).text == "0" and site.read == 3


async def test_an_answer_ends_with_its_moment() -> None:
    site = Site(seconds=0.0)
    await site.ask()
    await site.ask()
    assert site.read == 2


async def test_an_act_ends_all_answers_and_rows_end_none() -> None:
    site = Site()
    assert await site.ask() == "0"
    await site.client.post("/api/v1/runs/r/batches")
    assert await site.ask() == "0"
    await site.client.post("/api/v1/act")
    assert await site.ask() == "2"


async def test_what_was_read_before_an_act_is_not_kept_after_it() -> None:
    site = Site()
    site.gate.clear()
    early = asyncio.create_task(site.ask())
    await site.reading.wait()
    await site.client.post("/api/v1/act")
    site.gate.set()
    assert await early == "0"
    assert await site.ask() == "1"
