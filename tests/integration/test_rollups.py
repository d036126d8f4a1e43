"""Rollups equal what one computes from the raw rows, whatever came, in whatever order and however often they are made."""

from __future__ import annotations

import asyncio
import math
import random
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncEngine

from monitor.metrics import HISTOGRAM_BY_NAME
from monitor.store import ingest, rollups
from monitor.store.tables import hist, metric_set, point, rollup, rollup_cursor
from monitor.wire import Batch, Row, RunEnd, RunStart

BINS = HISTOGRAM_BY_NAME["adv.hist"].bins
AWKWARD = [math.nan, math.inf, -math.inf, None, 0.0, -0.0, 1e308, -1e308, 1.7976931348623157e308, 1e-300, 5e-324, 1e39, -1e39, 3.4e38, 1.5, -2.25]
REAL_MAX = float(np.finfo(np.float32).max)


async def send(engine: AsyncEngine, rows: list[Row], attempt: str = "a") -> None:
    async with engine.begin() as connection:
        await ingest.start_run(connection, RunStart(run="r", attempt=attempt, project="p", name="n", started_at=1.0))
        ack = await ingest.accept(connection, "r", Batch(attempt=attempt, seq=1, rows=rows))
        assert not ack.refused


async def everything(engine: AsyncEngine, table: Any) -> list[Any]:
    async with engine.connect() as connection:
        return list(await connection.execute(select(table)))


def as_real(value: float) -> float:
    return 0.0 if abs(value) < 1.2e-38 else float(np.float32(max(-REAL_MAX, min(REAL_MAX, value))))


async def expected(engine: AsyncEngine, level: int) -> dict[tuple[int, int, int], list[tuple[Any, ...]]]:
    """The buckets of one level, straight from the raw rows."""
    gathered: dict[tuple[int, int, int], list[list[float | None]]] = {}
    for row in await everything(engine, point):
        gathered.setdefault((row.segment, row.set_id, row.step // 8**level), []).append(row.vals)
    buckets = {}
    for key, rows in gathered.items():
        columns = []
        for values in zip(*rows, strict=True):
            finite = [value for value in values if value is not None and math.isfinite(value)]
            bad = sum(value is not None and not math.isfinite(value) for value in values)
            mean = math.fsum(max(-1.7e308, min(1.7e308, value)) / len(finite) for value in finite) if finite else None
            columns.append(
                (
                    len(finite),
                    bad,
                    as_real(min(finite)) if finite else None,
                    as_real(max(finite)) if finite else None,
                    mean,
                    max(map(abs, finite), default=0.0),
                )
            )
        buckets[key] = columns
    return buckets


async def check(engine: AsyncEngine) -> None:
    stored = await everything(engine, rollup)
    for level in rollups.LEVELS:
        wanted = await expected(engine, level)
        found = {
            (one.segment, one.set_id, one.bucket): list(zip(one.n, one.bad, one.mn, one.mx, one.mean, strict=True))
            for one in stored
            if one.level == level
        }
        assert found.keys() == wanted.keys()
        for key, columns in wanted.items():
            for got, want in zip(found[key], columns, strict=True):
                assert got[:2] == want[:2]
                assert got[2] == (None if want[2] is None else pytest.approx(want[2], rel=1e-6))
                assert got[3] == (None if want[3] is None else pytest.approx(want[3], rel=1e-6))
                # Values that cancel leave the rounding of the largest, and those below 1e-290 count as zero.
                assert got[4] == (None if want[4] is None else pytest.approx(want[4], rel=1e-9, abs=max(1e-12 * want[5], 1e-289)))


@pytest.mark.parametrize("seed", range(3))
async def test_rollups_equal_the_raw_rows(engine: AsyncEngine, seed: int) -> None:
    choose = random.Random(seed)
    for attempt in "ab":
        steps = choose.sample(range(1200), 300)
        for begin in range(0, 300, 60):
            rows = []
            for step in steps[begin : begin + 60]:
                names = choose.choice((("x", "y"), ("x", "y", "z"), ("w",)))
                values = {name: choose.choice([*AWKWARD, choose.gauss(0, 1), choose.gauss(0, 1)]) for name in names}
                rows.append(Row(step=step, at=1.0, values=values))
            await send(engine, rows, attempt)
            await rollups.roll_up(engine, everything=choose.random() < 0.5)
    await rollups.roll_up(engine, everything=True)
    await check(engine)


async def test_the_last_steps_that_exist_have_buckets(engine: AsyncEngine) -> None:
    await send(engine, [Row(step=2**53, at=1.0, values={"x": 1.0}), Row(step=0, at=1.0, values={"x": 2.0})])
    await rollups.roll_up(engine, everything=True)
    await check(engine)


async def test_more_rows_than_one_pass_takes(engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollups, "_CHUNK", 7)
    await send(engine, [Row(step=step, at=1.0, values={"x": float(step)}) for step in range(100)])
    await rollups.roll_up(engine)
    await check(engine)
    assert (await everything(engine, rollup_cursor))[0].seq == 100


async def test_collectors_do_not_disturb_each_other(engine: AsyncEngine) -> None:
    await send(engine, [Row(step=step, at=1.0, values={"x": float(step)}) for step in range(200)])
    await asyncio.gather(*(rollups.roll_up(engine, everything=True) for _ in range(4)))
    await rollups.roll_up(engine, everything=True)
    await check(engine)


async def test_a_few_rows_wait_until_the_run_ends(engine: AsyncEngine) -> None:
    await send(engine, [Row(step=step, at=1.0, values={"x": 1.0}) for step in range(7)])
    await rollups.roll_up(engine)
    assert await everything(engine, rollup) == []
    async with engine.begin() as connection:
        await ingest.finish(connection, "r", RunEnd(attempt="a", state="finished", at=2.0))
    await rollups.roll_up(engine)
    await check(engine)


async def test_histograms_add_up(engine: AsyncEngine) -> None:
    choose = random.Random(1)
    given = {step: [choose.randrange(5) for _ in range(BINS)] for step in range(0, 130, 3)}
    await send(engine, [Row(step=step, at=1.0, values={}, hists={"adv.hist": counts}) for step, counts in given.items()])
    await rollups.roll_up(engine)
    stored = {(one.level, one.bucket): one.counts for one in await everything(engine, hist)}
    for level in (0, *rollups.LEVELS):
        for bucket in {step // 8**level for step in given}:
            inside = [counts for step, counts in given.items() if step // 8**level == bucket]
            assert stored.pop((level, bucket)) == [sum(column) for column in zip(*inside, strict=True)]
    assert stored == {}


async def test_upkeep_works_in_the_background(engine: AsyncEngine) -> None:
    upkeep = rollups.Upkeep(engine)
    task = asyncio.create_task(upkeep.run_forever())
    try:
        await send(engine, [Row(step=step, at=1.0, values={"x": 1.0}) for step in range(16)])
        upkeep.poke()
        async with asyncio.timeout(30):
            while not await everything(engine, rollup):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    finally:
        task.cancel()
    assert len(await everything(engine, metric_set)) == 1


async def test_a_pass_reads_only_what_is_new(engine: AsyncEngine) -> None:
    await send(engine, [Row(step=step, at=1.0, values={"x": 1.0}) for step in range(2000)])
    await rollups.roll_up(engine)
    async with engine.begin() as connection:
        await connection.execute(text("ANALYZE point"))
        await connection.execute(text("UPDATE rollup_cursor SET seq = 1990"))
        plan = await connection.execute(
            text("EXPLAIN " + rollups._FROM_RAW.text.replace(":run", "1").replace(":after", "1990").replace(":upto", "2000"))
        )
        lines = [line for (line,) in plan]
    assert not any("Seq Scan" in line for line in lines), lines
