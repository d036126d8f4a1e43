"""What a chart reads equals what one computes from the rows: at any width, with or without rollups, in one go or poll by poll."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from monitor.store import ingest, rollups, series
from monitor.store.tables import run
from monitor.wire import Batch, Event, Row, RunStart, read_number

NAMES = ["a", "b", "eval"]


def values(step: int, dice: random.Random) -> dict[str, Any]:
    told: dict[str, Any] = {"a": dice.gauss(0, 1), "b": dice.choice([1.0, 2.5, math.nan, math.inf, None])}
    if step % 25 == 0:
        told["eval"] = float(step)
    return told


class Run:
    """A run whose rows the test also keeps: attempt -> step -> values."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.engine, self.kept, self.dice = engine, {}, random.Random(7)

    async def open(self, segment: int) -> Run:
        self.segment, self.batch = segment, 0
        async with self.engine.begin() as conn:
            await ingest.start_run(conn, RunStart(run="r", attempt=f"a{segment}", project="p", name="n", started_at=1.0))
            self.id = (await conn.scalars(select(run.c.id))).one()
        return self

    async def send(self, first: int, last: int) -> None:
        rows = [Row(step, 1000.0 + step, values(step, self.dice)) for step in range(first, last)]
        self.batch += 1
        async with self.engine.begin() as conn:
            await ingest.accept(conn, "r", Batch(f"a{self.segment}", self.batch, rows, events=[Event(1.0, "note")]))
        for row in rows:
            self.kept.setdefault(self.segment, {})[row.step] = {name: read_number(value) for name, value in row.values.items()}

    async def read(self, width: int, *, first: int = 0, last: int = 10**6) -> series.Curves:
        async with self.engine.connect() as conn:
            return await series.read(conn, self.id, NAMES, first=first, last=last, width=width, rows=await self.seq())

    async def seq(self) -> int:
        async with self.engine.connect() as conn:
            return (await conn.scalars(select(run.c.next_seq))).one() - 1

    def expected(self, width: int) -> dict[str, dict[int, dict[int, tuple[float | None, int]]]]:
        """Metric -> attempt -> first step of the bucket -> mean of the finite values and count of the others."""
        told: dict[str, dict[int, dict[int, tuple[float | None, int]]]] = {}
        for segment, steps in self.kept.items():
            groups: dict[str, dict[int, list[float]]] = {}
            for step, row in steps.items():
                for name, value in row.items():
                    if value is not None:
                        groups.setdefault(name, {}).setdefault(step // width * width, []).append(value)
            for name, buckets in groups.items():
                for x, found in buckets.items():
                    finite = [value for value in found if math.isfinite(value)]
                    mean = math.fsum(finite) / len(finite) if finite else None
                    told.setdefault(name, {}).setdefault(segment, {})[x] = (mean, len(found) - len(finite))
        return told


def assert_equal(curves: series.Curves, expected: dict[str, Any]) -> None:
    assert {name: set(attempts) for name, attempts in curves.items()} == {name: set(attempts) for name, attempts in expected.items()}
    for name, attempts in expected.items():
        for segment, buckets in attempts.items():
            curve = curves[name][segment]
            assert curve.x == sorted(buckets)
            assert [x for x, _ in curve.bad] == [x for x in curve.x if buckets[x][1]]
            for place, x in enumerate(curve.x):
                mean = buckets[x][0]
                assert curve.y[place] == (None if mean is None else pytest.approx(mean, rel=1e-9, abs=1e-9))
                if curve.low and mean is not None:
                    assert curve.low[place] - 1e-6 <= mean <= curve.high[place] + 1e-6


@pytest.mark.parametrize("rolled", ["no rollups", "half", "all"])
async def test_every_width_shows_the_same_run(engine: AsyncEngine, rolled: str) -> None:
    story = await Run(engine).open(0)
    await story.send(0, 600)
    if rolled == "half":
        await rollups.roll_up(engine, everything=True)
    await story.send(600, 700)
    await story.open(1)
    await story.send(650, 730)
    if rolled == "all":
        await rollups.roll_up(engine, everything=True)
    for width in (1, 2, 8, 32, 64, 512):
        assert_equal(await story.read(width), story.expected(width))


async def test_polls_add_up_to_the_whole(engine: AsyncEngine) -> None:
    story = await Run(engine).open(0)
    await story.send(0, 100)
    for width in (1, 8, 32):
        whole = await story.read(width)
        seen = await story.seq()
        last = max(story.kept[0])
        await story.send(last + 1, last + 14)
        async with engine.connect() as conn:
            [told] = await series.changes(conn, [series.Span(story.id, seen, await story.seq(), width)], NAMES)
        assert told is not None
        changed, held = told
        assert held <= set(NAMES)
        for name, attempts in changed.items():
            for segment, curve in attempts.items():
                old = whole[name][segment]
                for place, x in enumerate(curve.x):
                    if x in old.x:
                        old.y[old.x.index(x)] = curve.y[place]
                    else:
                        old.x.append(x)
                        old.y.append(curve.y[place])
                assert old.x == sorted(old.x)
        now = await story.read(width)
        assert {name: (curve[0].x, curve[0].y) for name, curve in whole.items()} == {name: (curve[0].x, curve[0].y) for name, curve in now.items()}


async def test_an_old_cursor_is_told_to_read_everything(engine: AsyncEngine) -> None:
    story = await Run(engine).open(0)
    await story.send(0, 1500)
    await story.send(1500, 2300)
    async with engine.connect() as conn:
        seq = await story.seq()
        spans = [series.Span(story.id, 0, seq, 1), series.Span(story.id, seq, seq, 1)]
        assert await series.changes(conn, spans, NAMES) == [None, ({}, set())]


async def test_a_window_and_the_clock(engine: AsyncEngine) -> None:
    story = await Run(engine).open(0)
    await story.send(0, 300)
    curves = await story.read(1, first=100, last=120)
    assert curves["a"][0].x == list(range(100, 121)) and curves["eval"][0].x == [100]
    async with engine.connect() as conn:
        ticks = await series.clock(conn, story.id, first=0, last=299, points=50)
    assert ticks[0] == (0, 1000.0) and len(ticks) == 50
    assert all(at == 1000.0 + step for step, at in ticks)


async def test_at_which_step_a_run_was(engine: AsyncEngine) -> None:
    story = await Run(engine).open(0)
    await story.send(0, 500)
    await story.send(500, 1000)
    async with engine.connect() as conn:
        assert await series.steps_at(conn, story.id, [999.0, 1000.0, 1420.5, 1499.9, 1999.0, 5000.0], last=999) == [None, 0, 420, 499, 999, 999]
        assert await series.steps_at(conn, story.id, [], last=999) == []


def test_widths() -> None:
    assert [series.width_for(0, last) for last in (0, 999, 1000, 1999, 2000, 999_999)] == [1, 1, 4, 4, 8, 2048]
    assert [series.level_for(width) for width in (1, 4, 8, 32, 64, 512, 4096, 2**20)][:6] == [0, 0, 1, 1, 2, 3]
