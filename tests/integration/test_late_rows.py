"""Rows that arrive long after they were logged, such as a spool that is sent days later: judged and stored, and told to nobody in vain."""

from __future__ import annotations

from typing import Any

import pytest
from runs import T0, Feed, broken, good
from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from monitor import wire
from monitor.alerts.acting import Act
from monitor.alerts.routing import Route
from monitor.alerts.rules import Rules
from monitor.deliver.webhook import Webhook
from monitor.store import evaluation as claims
from monitor.store import ingest
from monitor.store.tables import alert, delivery, evaluation, event, request, run, transition
from monitor.worker import Worker

NOWHERE = Webhook("webhook", "http://127.0.0.1:9/never-called", private=True)
DAYS = 3 * 86_400.0


async def judge(engine: AsyncEngine, rules: Rules = Rules()) -> None:
    worker = Worker(engine, [NOWHERE], rules=rules, routes=rules.routes)
    while await worker.evaluate() or await worker.watch():
        pass


async def rows_of(engine: AsyncEngine, query: Any) -> list[Any]:
    async with engine.connect() as conn:
        return list((await conn.execute(query)).all())


async def told(engine: AsyncEngine) -> list[tuple[str, str, bool]]:
    """Detector, reason and whether it was sent, of every change."""
    query = select(alert.c.detector, transition.c.reason, delivery.c.id.is_not(None)).join_from(transition, alert)
    return [
        tuple(row) for row in await rows_of(engine, query.outerjoin(delivery, delivery.c.transition_id == transition.c.id).order_by(transition.c.id))
    ]


async def notes(engine: AsyncEngine) -> list[tuple[str, int, float | None]]:
    return [(row.kind, row.seq, row.detail.get("seconds")) for row in await rows_of(engine, select(event).order_by(event.c.seq))]


async def test_history_is_judged_and_stored_with_one_note_and_nobody_is_told(engine: AsyncEngine) -> None:
    feed = await Feed(engine, "r1", accepts=["stop"]).start()
    rules = Rules(acts=(Act("stop", dry_run=False),), routes=(Route(("webhook",), severity="watch", digest_s=60.0), Route(("webhook",))))
    await feed.rows(good(3) + broken(2), sent_at=T0 + DAYS)
    await feed.rows(good(12), sent_at=T0 + DAYS)
    await judge(engine, rules)
    assert await told(engine) == [("non_finite", "opened", False), ("non_finite", "quiet", False)]
    (muted, *_) = await rows_of(engine, select(transition.c.muted).order_by(transition.c.id))
    assert muted.muted == "its rows arrived long after they were logged"
    assert await notes(engine) == [("late_rows", 1, DAYS)]
    (said,) = await rows_of(engine, select(evaluation.c.rows, evaluation.c.verdict))
    assert said.rows == 17 and said.verdict["sentence"]
    assert await rows_of(engine, select(request)) == []


async def test_the_crash_at_the_end_of_old_rows_is_old_news_too(engine: AsyncEngine) -> None:
    feed = await Feed(engine, "r1").start()
    await feed.rows(good(5), sent_at=T0 + DAYS)
    async with engine.begin() as conn:
        await ingest.finish(conn, feed.uid, wire.RunEnd(feed.attempt, "crashed", T0 + 6, "out of memory"))
    await judge(engine)
    assert await told(engine) == [("crashed", "opened", False)]


async def test_a_client_that_catches_up_tells_of_what_still_holds_once(engine: AsyncEngine) -> None:
    """The network was away for two hours; one batch holds rows from then and rows of now."""
    feed = await Feed(engine, "r1").start()
    pace = 60.0
    await feed.rows(good(60), pace=pace, sent_at=T0)
    await feed.rows(broken(1) + good(12) + broken(107), pace=pace, sent_at=T0 + 180 * pace)
    await feed.rows(broken(3), pace=pace, sent_at=T0 + 183 * pace)
    await judge(engine)
    assert await told(engine) == [
        ("non_finite", "opened", False),
        ("non_finite", "quiet", False),
        ("non_finite", "reopened", False),
        ("non_finite", "caught up", True),
    ]
    assert await notes(engine) == [("late_rows", 61, 7200.0), ("rows_on_time", 177, None)]
    await feed.rows(good(25), pace=pace, sent_at=T0 + 208 * pace)
    await judge(engine)
    assert (await told(engine))[-1] == ("non_finite", "quiet", True)


async def test_how_late_is_late_is_a_rule_and_never_is_one(engine: AsyncEngine) -> None:
    for uid, late_s in (("r1", DAYS - 10), ("r2", DAYS + 10), ("r3", float("inf"))):
        feed = await Feed(engine, uid).start()
        await feed.rows(broken(1), sent_at=T0 + DAYS)
        await judge(engine, Rules(late_s=late_s))
    found = await rows_of(engine, select(run.c.uid).join_from(delivery, transition).join(run, run.c.id == transition.c.run_id).order_by(run.c.id))
    assert [row.uid for row in found] == ["r2", "r3"]


@pytest.mark.parametrize("sent_at", [None, T0 - 1e6, T0 + 200.0])
async def test_a_wrong_clock_or_a_client_that_does_not_say_is_on_time(engine: AsyncEngine, sent_at: float | None) -> None:
    """The rows of these tests are months old by the collector's clock."""
    feed = await Feed(engine, "r1").start()
    await feed.rows(good(3) + broken(1), sent_at=sent_at)
    await judge(engine)
    assert await told(engine) == [("non_finite", "opened", True)] and await notes(engine) == []


async def test_a_run_that_is_being_caught_up_with_waits_for_those_that_run_now(engine: AsyncEngine) -> None:
    backlog, live = [await Feed(engine, uid).start() for uid in ("backlog", "live")]
    for _ in range(2):
        await backlog.rows(good(600))
    await live.rows(good(1))
    async with engine.begin() as conn:
        await conn.execute(update(evaluation).values(updated_at=func.now()))
    for expected in ("live", "backlog"):
        async with engine.connect() as conn:
            claimed = await claims.claim(conn)
            assert claimed is not None and claimed.uid == expected
        if expected == "live":
            await Worker(engine, []).evaluate()
