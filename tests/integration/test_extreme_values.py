"""Values at the ends of float8 reach the charts: a diverging run is exactly the one whose page must open."""

from __future__ import annotations

import math

import pytest
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from monitor.store import ingest, rollups, series
from monitor.store.tables import run
from monitor.wire import Batch, Row, RunStart

VALUES = [1e200, 2e200, 1.7976931348623157e308, -1.7976931348623157e308, 1e308, 5e-324, -5e-324, 1e-300, math.nan, math.inf, 0.0, 1.0]


@pytest.mark.parametrize("rolled", [False, True])
@pytest.mark.parametrize("width", [1, 2, 8, 64, 4096])
async def test_a_diverging_run_can_be_drawn(engine: AsyncEngine, rolled: bool, width: int) -> None:
    rows = [Row(step=step, at=1.0, values={"loss": VALUES[step % len(VALUES)]}) for step in range(120)]
    async with engine.begin() as connection:
        await ingest.start_run(connection, RunStart(run="r", attempt="a", project="p", name="n", started_at=1.0))
        assert (await ingest.accept(connection, "r", Batch(attempt="a", seq=1, rows=rows))).accepted == 120
    if rolled:
        await rollups.roll_up(engine, everything=True)
    async with engine.connect() as connection:
        run_id = (await connection.scalars(select(run.c.id))).one()
        curves = await series.read(connection, run_id, ["loss"], first=0, last=119, width=width, rows=120)
    assert curves["loss"]
