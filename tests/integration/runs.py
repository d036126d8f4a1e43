"""Runs that raise and resolve alerts, sent through the collector's own door."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine

from monitor import wire
from monitor.store import ingest

T0 = 1_770_000_000.0


class Feed:
    """One run's client: ``await feed.rows(...)`` accepts rows at the next steps."""

    def __init__(self, engine: AsyncEngine, uid: str, **start: Any) -> None:
        self.engine, self.uid, self.attempt, self.step, self.batch = engine, uid, f"{uid}-0", 0, 0
        self.start_fields = {"project": "repair", "name": f"name of {uid}", **start}

    async def start(self, attempt: str | None = None, step: int = 0) -> Feed:
        self.attempt, self.step, self.batch = attempt or self.attempt, step, 0
        async with self.engine.begin() as conn:
            await ingest.start_run(conn, wire.RunStart(run=self.uid, attempt=self.attempt, started_at=T0, **self.start_fields))
        return self

    async def rows(self, values: Iterable[Mapping[str, Any]], *, pace: float = 1.0, **more: Any) -> None:
        rows = [wire.Row(self.step + i, T0 + (self.step + i) * pace, dict(each)) for i, each in enumerate(values)]
        self.step, self.batch = self.step + len(rows), self.batch + 1
        async with self.engine.begin() as conn:
            ack = await ingest.accept(conn, self.uid, wire.Batch(self.attempt, self.batch, rows, **more))
        assert not ack.refused


def good(n: int = 1) -> list[dict[str, Any]]:
    return [{"opt.grad_norm": 0.5, "opt.loss": 0.1}] * n


def broken(n: int = 1) -> list[dict[str, Any]]:
    """Rows that are critical whatever came before."""
    return [{"opt.grad_norm": math.nan, "opt.loss": 0.1}] * n


async def until(holds: Callable[[], bool | Awaitable[bool]], every: float = 0.02) -> None:
    """Waits until ``holds()``; the test's own timeout is the limit."""
    while True:
        answer = holds()
        if await answer if inspect.isawaitable(answer) else answer:
            return
        await asyncio.sleep(every)
