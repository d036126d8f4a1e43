"""A project's history: every run once, where its task reward ended and its best, whether rolled up or not; names that collide carry an id."""

from __future__ import annotations

import math
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from runs import Feed
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from monitor.store import control, projects, queries, rollups
from monitor.store.projects import Past, Wanted


async def past(engine: AsyncEngine, wanted: Wanted, **page: int) -> list[Past]:
    async with engine.connect() as conn:
        return await projects.history(conn, wanted, **{"limit": 100, **page})


@pytest.mark.parametrize("rolled", [False, True])
async def test_rewards_end_with_their_last_rows_and_the_best_is_found_in_rollups_and_after_them(engine: AsyncEngine, rolled: bool) -> None:
    feed = await Feed(engine, "long").start()
    await feed.rows([{"reward.task.mean": 0.5, "entropy.mean": 1.0}] * 600)
    await feed.rows([{"reward.task.mean": 0.9}])
    await feed.rows([{"entropy.mean": 1.0}] * 5)
    await feed.rows([{"reward.task.mean": 0.1 * i} for i in range(1, 8)])
    if rolled:
        await rollups.roll_up(engine, everything=True)
    await feed.rows([{"reward.task.mean": 0.8}, {"reward.task.mean": math.nan}])
    other = await Feed(engine, "own", task_reward="reward.fn.tests.mean").start()
    await other.rows([{"reward.fn.tests.mean": -0.25, "reward.task.mean": 7.0}, {"reward.fn.tests.mean": math.inf}])
    await Feed(engine, "empty").start()
    empty, own, long = await past(engine, Wanted("repair"))
    assert long.best == pytest.approx(0.9) and long.bad == "NaN"
    assert long.last == pytest.approx((0.9 + sum(0.1 * i for i in range(1, 8)) + 0.8) / 9), (
        "the ten newest rows that hold it, of which one is not finite"
    )
    assert (own.last, own.best, own.bad) == (-0.25, -0.25, "Infinity")
    assert (empty.last, empty.best, empty.bad, empty.last_step) == (None, None, None, None)


async def test_the_newest_come_first_in_pages_and_filters_hold(engine: AsyncEngine) -> None:
    for day in range(6):
        await Feed(engine, f"r{day}").start()
        async with engine.begin() as conn:
            at = datetime(2026, 11, 1, tzinfo=UTC) + timedelta(days=day)
            await conn.execute(text("UPDATE run SET created_at = :at WHERE uid = :uid"), {"at": at, "uid": f"r{day}"})
    await Feed(engine, "elsewhere", project="other").start()
    async with engine.begin() as conn:
        await control.set_outcome(conn, "r1", "healthy")
        await conn.execute(text("UPDATE evaluation SET severity = 'critical' FROM run WHERE run.id = run_id AND uid = 'r4'"))
    assert [each.uid for each in await past(engine, Wanted("repair"), limit=2, offset=2)] == ["r3", "r2"]
    assert [each.uid for each in await past(engine, Wanted("repair", since=datetime(2026, 11, 4, tzinfo=UTC)))] == ["r5", "r4", "r3"]
    assert [each.uid for each in await past(engine, Wanted("repair", severity="critical"))] == ["r4"]
    assert [each.uid for each in await past(engine, Wanted("repair", outcome="healthy"))] == ["r1"]
    assert len(await past(engine, Wanted("repair", outcome="-"))) == 5
    async with engine.connect() as conn:
        assert await projects.tally(conn, Wanted("repair")) == {"critical": 1, "unknown": 5}
        assert await projects.exists(conn, "other") and not await projects.exists(conn, "repai")


async def test_names_that_collide_within_a_project_carry_an_id(engine: AsyncEngine) -> None:
    random, given = uuid.uuid4().hex, "a-given-id"
    for uid in (random, given, "third"):
        await Feed(engine, uid, name="same" if uid != "third" else "labelled").start()
    await Feed(engine, "far", name="same", project="other").start()
    async with engine.connect() as conn:
        shown = {run.uid: run.shown for run in await queries.fleet(conn)}
    assert shown == {random: f"same · {random[:6]}", given: f"same · {given}", "third": "labelled", "far": "same"}
    async with engine.begin() as conn:
        await control.set_label(conn, "third", "same")
        assert {run.uid: run.shown for run in await queries.fleet(conn)}["third"] == "same · third"
