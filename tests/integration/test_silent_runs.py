"""Runs that fall silent, crash or end; and collectors that were down, which is no fault of the run."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from runs import T0, Feed, good, until
from sqlalchemy import func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from monitor import wire
from monitor.deliver.webhook import Webhook
from monitor.store import ingest, presence
from monitor.store.tables import alert, beat, blind, delivery, evaluation, run, segment, transition
from monitor.worker import Worker

NOWHERE = Webhook("webhook", "http://127.0.0.1:9/never-called", private=True)


async def settle(worker: Worker) -> None:
    while await worker.evaluate() or await worker.watch():
        pass


async def told(engine: AsyncEngine) -> list[tuple[str, str, str]]:
    async with engine.connect() as conn:
        columns = alert.c.detector, transition.c.to_state, transition.c.reason
        return [tuple(row) for row in await conn.execute(select(*columns).join_from(transition, alert).order_by(transition.c.id))]


async def elapse(engine: AsyncEngine, seconds: float, *, beating: bool) -> None:
    """As if so many seconds had passed for the runs; ``beating``: their clients were heard all the while."""
    past = timedelta(seconds=seconds)
    async with engine.begin() as conn:
        await conn.execute(update(evaluation).values(deadline_at=evaluation.c.deadline_at - past))
        await conn.execute(update(run).values(last_seen_at=func.now() if beating else run.c.last_seen_at - past))
        await conn.execute(update(segment).values(opened_at=segment.c.opened_at - past))
        await conn.execute(update(blind).values(from_at=blind.c.from_at - past, to_at=blind.c.to_at - past))


async def stepping(engine: AsyncEngine, uid: str = "r1") -> Feed:
    """A run of ten steps, one a second."""
    feed = await Feed(engine, uid).start()
    await feed.rows(good(10))
    return feed


async def test_a_run_of_ten_seconds_a_step_is_reported_between_two_and_four_minutes(engine: AsyncEngine) -> None:
    feed, worker = await Feed(engine, "r1").start(), Worker(engine, [NOWHERE])
    await feed.rows(good(10), pace=10.0)
    await settle(worker)
    for seconds, expected in ((119, []), (2, [("stalled", "warning", "opened")])):
        await elapse(engine, seconds, beating=True)
        await settle(worker)
        assert await told(engine) == expected
    await feed.rows(good(1), pace=10.0)
    await settle(worker)
    assert (await told(engine))[-1] == ("stalled", "resolved", "returned")


async def test_a_run_that_never_sends_a_row_is_reported(engine: AsyncEngine) -> None:
    """With a client that speaks it may load and compile for half an hour; without, its process is gone."""
    worker = Worker(engine, [NOWHERE])
    for uid in ("loading", "gone"):
        await Feed(engine, uid).start()
    just_heard = update(run).where(run.c.uid == "loading").values(last_seen_at=func.now())
    seen: list[list[tuple[str, str, str]]] = []
    for seconds in (115, 10, 500, 1000, 300, 6000):
        await elapse(engine, seconds, beating=False)
        async with engine.begin() as conn:
            await conn.execute(just_heard)
        await settle(worker)
        seen.append(await told(engine))
    lost, worse = ("lost", "warning", "opened"), ("lost", "critical", "rose")
    stalled = ("stalled", "warning", "opened")
    assert seen == [[], [lost], [lost, worse], [lost, worse], [lost, worse, stalled], [lost, worse, stalled, ("stalled", "critical", "rose")]]
    async with engine.connect() as conn:
        assert set(await conn.scalars(select(run.c.watched))) == {False}


async def test_a_resumed_run_may_load_before_it_is_called_stalled_and_is_missed_when_it_never_steps(engine: AsyncEngine) -> None:
    feed, worker = await stepping(engine), Worker(engine, [NOWHERE])
    await settle(worker)
    await elapse(engine, 100, beating=True)
    await feed.start("second", step=10)
    await elapse(engine, 600, beating=True)
    await settle(worker)
    assert await told(engine) == []
    await elapse(engine, 600, beating=False)
    await settle(worker)
    assert await told(engine) == [("lost", "warning", "opened")]


async def test_a_stalled_run_is_reported_gets_worse_and_resolves_when_it_returns(engine: AsyncEngine) -> None:
    feed, worker = await stepping(engine), Worker(engine, [NOWHERE])
    await settle(worker)
    await elapse(engine, 115, beating=True)
    await settle(worker)
    assert await told(engine) == []
    await elapse(engine, 10, beating=True)
    await settle(worker)
    assert await told(engine) == [("stalled", "warning", "opened")]
    async with engine.connect() as conn:
        said = (await conn.execute(select(evaluation.c.severity, evaluation.c.verdict))).one()
    assert said.severity == "warning" and said.verdict["sentence"].startswith("No step has ended for 125 s")
    assert said.verdict["organs"]["pace"]["state"] == "warning"
    await elapse(engine, 470, beating=True)
    await settle(worker)
    assert len(await told(engine)) == 1
    await elapse(engine, 20, beating=True)
    await settle(worker)
    await elapse(engine, 99_999, beating=True)
    await settle(worker)
    assert await told(engine) == [("stalled", "warning", "opened"), ("stalled", "critical", "rose")]
    await feed.rows(good(1))
    await settle(worker)
    assert (await told(engine))[-1] == ("stalled", "resolved", "returned")
    async with engine.connect() as conn:
        assert (await conn.execute(select(func.count()).select_from(delivery))).scalar_one() == 3
        assert (await conn.execute(select(evaluation.c.deadline_at))).scalar_one() is not None


async def test_a_client_that_is_silent_too_is_lost(engine: AsyncEngine) -> None:
    await stepping(engine)
    worker = Worker(engine, [NOWHERE])
    await settle(worker)
    await elapse(engine, 130, beating=False)
    await settle(worker)
    assert await told(engine) == [("lost", "warning", "opened")]


async def test_a_crash_is_told_at_once_and_a_resume_resolves_it(engine: AsyncEngine) -> None:
    feed, worker = await stepping(engine), Worker(engine, [NOWHERE])
    async with engine.begin() as conn:
        await ingest.finish(conn, feed.uid, wire.RunEnd(feed.attempt, "crashed", T0 + 11, "CUDA out of memory"))
    await settle(worker)
    await settle(worker)
    assert await told(engine) == [("crashed", "critical", "opened")]
    await feed.start("second", step=10)
    await feed.rows(good(2))
    await settle(worker)
    assert (await told(engine))[1:] == [("crashed", "resolved", "returned")]


async def test_a_run_that_ended_well_is_never_overdue(engine: AsyncEngine) -> None:
    feed, worker = await stepping(engine), Worker(engine, [NOWHERE])
    await settle(worker)
    await elapse(engine, 130, beating=False)
    await settle(worker)
    async with engine.begin() as conn:
        await ingest.finish(conn, feed.uid, wire.RunEnd(feed.attempt, "finished", T0 + 200))
    await settle(worker)
    await elapse(engine, 99_999, beating=False)
    await settle(worker)
    assert await told(engine) == [("lost", "warning", "opened"), ("lost", "resolved", "ended")]


async def test_silence_while_the_collector_was_down_says_nothing(engine: AsyncEngine) -> None:
    await stepping(engine)
    worker = Worker(engine, [NOWHERE])
    await settle(worker)
    async with engine.begin() as conn:
        await conn.execute(insert(beat).values(component="collector", at=func.now() - timedelta(hours=1)))
    await elapse(engine, 3600, beating=False)
    await settle(worker)
    assert await told(engine) == []
    async with engine.begin() as conn:
        await presence.alive(conn)
        gap = (await conn.execute(select(blind))).one()
    assert gap.component == "collector" and 3500 < (gap.to_at - gap.from_at).total_seconds() < 3700
    await elapse(engine, 20, beating=False)
    await settle(worker)
    assert await told(engine) == []
    await elapse(engine, 110, beating=False)
    async with engine.begin() as conn:
        await presence.alive(conn)
    await settle(worker)
    assert await told(engine) == [("lost", "warning", "opened")]


async def test_rows_that_came_while_no_worker_was_there_are_no_silence(engine: AsyncEngine) -> None:
    feed, worker = await stepping(engine), Worker(engine, [NOWHERE])
    await settle(worker)
    await elapse(engine, 3600, beating=True)
    await feed.rows(good(5))
    await settle(Worker(engine, [NOWHERE]))
    assert await told(engine) == []
    await elapse(engine, 130, beating=True)
    await settle(worker)
    assert await told(engine) == [("stalled", "warning", "opened")]


async def test_a_worker_tells_when_it_was_away(engine: AsyncEngine) -> None:
    async with engine.begin() as conn:
        await conn.execute(insert(beat).values(component="worker", at=func.now() - timedelta(minutes=20)))
    stop = asyncio.Event()
    working = asyncio.create_task(Worker(engine, []).run(stop))

    async def seen() -> bool:
        async with engine.connect() as conn:
            return bool(await presence.blind_spells(conn, 3600))

    await until(seen)
    stop.set()
    await working
    async with engine.connect() as conn:
        (spell,) = await presence.blind_spells(conn, 3600)
    assert spell.component == "worker" and 1190 < (spell.to_at - spell.from_at).total_seconds() < 1260


async def test_beats_without_a_gap_are_no_blindness(engine: AsyncEngine) -> None:
    for _ in range(3):
        async with engine.begin() as conn:
            await presence.alive(conn)
    async with engine.connect() as conn:
        assert (await conn.execute(select(func.count()).select_from(blind))).scalar_one() == 0


async def test_an_announced_pause_is_no_silence(engine: AsyncEngine) -> None:
    feed, worker = await stepping(engine), Worker(engine, [NOWHERE])
    await feed.rows([], events=[wire.Event(at=T0 + 11, kind="expect", step=10, detail={"seconds": 1000, "why": "evaluation"})])
    await settle(worker)
    await elapse(engine, 1000, beating=True)
    await settle(worker)
    assert await told(engine) == []
    await elapse(engine, 130, beating=True)
    await settle(worker)
    assert await told(engine) == [("stalled", "warning", "opened")]


async def test_a_paused_run_is_never_missed_not_even_before_its_first_row(engine: AsyncEngine) -> None:
    paused = wire.Event(at=T0 + 11, kind="pause", step=10, detail={"why": "waits for its data"})
    feed, worker = await stepping(engine), Worker(engine, [NOWHERE])
    fresh = await Feed(engine, "fresh").start()
    for each in (feed, fresh):
        await each.rows([], events=[paused])
    await settle(worker)
    await elapse(engine, 99_999, beating=False)
    await settle(worker)
    assert await told(engine) == []
    async with engine.connect() as conn:
        assert {(each.run, each.why, each.until) for each in await presence.announced(conn)} == {
            (uid, "waits for its data", None) for uid in ("r1", "fresh")
        }
    await feed.rows(good(1))
    await settle(worker)
    await elapse(engine, 130, beating=True)
    await settle(worker)
    assert await told(engine) == [("stalled", "warning", "opened")]


async def test_a_run_that_cannot_be_looked_at_stops_no_other(engine: AsyncEngine) -> None:
    for uid in ("bad", "fine"):
        await stepping(engine, uid)
    worker = Worker(engine, [NOWHERE])
    await settle(worker)
    async with engine.begin() as conn:
        of_bad = evaluation.c.run_id == select(run.c.id).where(run.c.uid == "bad").scalar_subquery()
        await conn.execute(update(evaluation).where(of_bad).values(state={"spoiled": True}))
    await elapse(engine, 130, beating=True)
    await settle(worker)
    assert await told(engine) == [("stalled", "warning", "opened")]


async def test_nobody_looks_at_a_run_of_which_all_is_said_until_more_comes(engine: AsyncEngine) -> None:
    """Stored history must cost the worker nothing; and what comes late, even from an attempt that was replaced, is judged."""

    async def watched() -> bool:
        async with engine.connect() as conn:
            return bool((await conn.execute(select(run.c.watched))).scalar_one())

    feed, worker = await stepping(engine), Worker(engine, [NOWHERE])
    await settle(worker)
    await elapse(engine, 130, beating=False)
    await settle(worker)
    assert await watched() and await told(engine) == [("lost", "warning", "opened")]
    await elapse(engine, 600, beating=False)
    await settle(worker)
    assert not await watched() and (await told(engine))[-1] == ("lost", "critical", "rose")
    await feed.rows([])
    assert not await watched()
    await feed.rows(good(1))
    assert await watched()
    await settle(worker)
    assert (await told(engine))[-1] == ("lost", "resolved", "returned")

    first = feed.attempt
    await feed.start("second", step=11)
    async with engine.begin() as conn:
        await ingest.finish(conn, feed.uid, wire.RunEnd("second", "finished", T0 + 200))
    await settle(worker)
    assert not await watched()
    feed.attempt = first
    await feed.rows(good(2))
    assert await watched()
    await settle(worker)
    async with engine.connect() as conn:
        assert (await conn.execute(select(run.c.state, evaluation.c.rows).join_from(run, evaluation))).one() == ("finished", 13)
