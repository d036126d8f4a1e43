"""Judgement against a real database: what is written, when, and that nothing is written twice."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from runs import Feed, broken, good, until
from sqlalchemy import func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from monitor import wire
from monitor.alerts.routing import Route
from monitor.deliver.webhook import Webhook
from monitor.store.tables import alert, delivery, evaluation, incident, run, silence, transition
from monitor.worker import Pace, Worker

NOWHERE = Webhook("webhook", "http://127.0.0.1:9/never-called", private=True)


async def judge_all(worker: Worker) -> None:
    while await worker.evaluate():
        pass


async def all_rows(engine: AsyncEngine, query):
    async with engine.connect() as conn:
        return (await conn.execute(query)).mappings().all()


async def moves(engine: AsyncEngine, uid: str = "r1") -> list[tuple[str, str, str, int]]:
    columns = transition.c.from_state, transition.c.to_state, transition.c.reason, transition.c.step
    found = await all_rows(engine, select(*columns).join_from(transition, run).where(run.c.uid == uid).order_by(transition.c.id))
    return [tuple(row.values()) for row in found]


async def test_a_collapse_is_raised_and_resolved_with_its_deliveries(engine: AsyncEngine) -> None:
    feed = await Feed(engine, "r1").start()
    worker = Worker(engine, [NOWHERE])
    await feed.rows(good(3) + broken(2))
    await judge_all(worker)
    (raised,) = await all_rows(engine, select(alert))
    assert (raised["detector"], raised["organ"], raised["severity"], raised["state"]) == ("non_finite", "optimizer", "critical", "open")
    assert (raised["opened_step"], raised["last_step"], raised["resolved_at"]) == (3, 4, None)
    assert raised["opened_at"].timestamp() == 1_770_000_003.0
    (said,) = await all_rows(engine, select(evaluation))
    assert said["severity"] == "critical" and said["verdict"]["sentence"].endswith("since step 3.") and said["verdict"]["organs"]["optimizer"]
    assert said["seq"] == 5 and said["rows"] == 5 and said["seconds"] > 0

    await feed.rows(good(10))
    await judge_all(worker)
    assert await moves(engine) == [("ok", "critical", "opened", 3), ("critical", "resolved", "quiet", 14)]
    (over,) = await all_rows(engine, select(alert))
    assert (over["state"], over["severity"], over["last_step"], over["resolved_step"]) == ("resolved", "critical", 4, 14)
    assert [row["channel"] for row in await all_rows(engine, select(delivery))] == ["webhook", "webhook"]
    assert (await all_rows(engine, select(evaluation.c.severity)))[0]["severity"] != "critical"


async def test_judging_the_same_rows_again_writes_and_tells_nothing_new(engine: AsyncEngine) -> None:
    feed = await Feed(engine, "r1").start()
    await feed.rows(good(3) + broken(1) + good(12) + broken(1))
    worker = Worker(engine, [NOWHERE])
    await judge_all(worker)
    before = [await all_rows(engine, select(table)) for table in (transition, delivery)]
    assert len(before[0]) == 3
    async with engine.begin() as conn:
        await conn.execute(update(evaluation).values(seq=0, rows=0, state={}))
    await judge_all(worker)
    assert [await all_rows(engine, select(table)) for table in (transition, delivery)] == before
    assert len(await all_rows(engine, select(alert))) == 1


async def test_the_size_of_a_batch_changes_nothing(engine: AsyncEngine) -> None:
    rows = good(3) + broken(1) + good(12) + broken(3) + good(25)
    seen = []
    for uid, size in (("r1", 1), ("r2", 7), ("r3", 1000)):
        await (await Feed(engine, uid).start()).rows(rows)
        await judge_all(Worker(engine, [], pace=Pace(rows=size)))
        seen.append(await moves(engine, uid))
    assert seen[0] == seen[1] == seen[2] and len(seen[0]) == 4
    states = await all_rows(engine, select(evaluation.c.state["detect"].label("detect"), evaluation.c.seq, evaluation.c.rows))
    assert dict(states[0]) == dict(states[1]) == dict(states[2])


async def test_events_between_rows_move_the_cursor(engine: AsyncEngine) -> None:
    feed = await Feed(engine, "r1").start()
    await feed.rows(good(2), events=[wire.Event(at=1.77e9, kind="checkpoint", step=1), wire.Event(at=1.77e9, kind="note", detail={"a": 1})])
    worker = Worker(engine, [], pace=Pace(rows=1))
    await judge_all(worker)
    (said,) = await all_rows(engine, select(evaluation))
    assert said["seq"] == 4 and said["rows"] == 2
    assert not await worker.evaluate()


async def test_a_resumed_run_does_not_fire_again(engine: AsyncEngine) -> None:
    feed = await Feed(engine, "r1").start()
    await feed.rows(good(20) + broken(1) + good(30))
    worker = Worker(engine, [NOWHERE])
    await judge_all(worker)
    assert len(await moves(engine)) == 2
    await feed.start("second", step=15)
    await feed.rows(good(5) + broken(1) + good(10))
    await judge_all(worker)
    assert len(await moves(engine)) == 2


async def test_workers_side_by_side_judge_each_row_once(engine: AsyncEngine) -> None:
    feeds = [await Feed(engine, f"r{i}").start() for i in range(12)]
    stop = asyncio.Event()
    workers = [asyncio.create_task(Worker(engine, [], pace=Pace(rows=5, idle_s=0.01)).run(stop)) for _ in range(3)]
    for _ in range(3):
        await asyncio.gather(*(feed.rows(good(3) + broken(1) + good(11)) for feed in feeds))
    waiting = select(func.count()).select_from(evaluation).join(run, run.c.id == evaluation.c.run_id).where(run.c.next_seq - 1 > evaluation.c.seq)

    async def judged() -> bool:
        async with engine.connect() as conn:
            return not (await conn.execute(waiting)).scalar_one()

    await until(judged)
    stop.set()
    await asyncio.gather(*workers)
    expected = [("ok", "critical", "opened", 3), ("critical", "resolved", "quiet", 13), ("resolved", "critical", "reopened", 18)]
    for feed in feeds:
        seen = await moves(engine, feed.uid)
        assert seen[:3] == expected and len(seen) == len({(*m[:3], m[3]) for m in seen})
    assert {row["rows"] for row in await all_rows(engine, select(evaluation.c.rows))} == {45}


async def test_a_run_that_cannot_be_judged_stops_no_other_and_loses_nothing(engine: AsyncEngine) -> None:
    feeds = [await Feed(engine, uid).start() for uid in ("bad", "fine")]
    for feed in feeds:
        await feed.rows(good(3) + broken(1))
    of_bad = evaluation.c.run_id == select(run.c.id).where(run.c.uid == "bad").scalar_subquery()
    async with engine.begin() as conn:
        await conn.execute(update(evaluation).where(of_bad).values(state={"detect": {"rows": "spoiled"}, "book": {"run": "bad", "episodes": {}}}))
    worker = Worker(engine, [], pace=Pace(retry_s=0.01, retry_cap_s=0.01))
    for _ in range(6):
        await worker.evaluate()
    assert len(await moves(engine, "fine")) == 1
    (said,) = await all_rows(engine, select(evaluation).where(of_bad))
    assert said["severity"] == "cannot judge" and said["failures"] >= 2 and said["seq"] == 0
    assert said["verdict"]["sentence"].startswith("Evaluation failed: ") and "Traceback" not in said["verdict"]["sentence"]
    async with engine.begin() as conn:
        await conn.execute(update(evaluation).where(of_bad).values(state={}))
    await asyncio.sleep(0.02)
    await judge_all(worker)
    assert await moves(engine, "bad") == [("ok", "critical", "opened", 3)]
    (said,) = await all_rows(engine, select(evaluation).where(of_bad))
    assert said["failures"] == 0 and said["severity"] == "critical"


async def test_a_symptom_is_stored_in_the_incident_of_its_cause_and_nobody_is_told(engine: AsyncEngine) -> None:
    """No sample has an advantage while the gradient is not finite: one story, told once."""
    feed = await Feed(engine, "r1").start()
    await feed.rows([{**row, "adv.nonzero_frac": 0.9} for row in good(12)])
    await feed.rows([{**row, "adv.nonzero_frac": 0.0} for row in broken(12)])
    worker = Worker(engine, [NOWHERE])
    await judge_all(worker)
    (story,) = await all_rows(engine, select(incident))
    assert (story["state"], story["severity"], story["number"], story["opened_step"]) == ("open", "critical", 1, 12)
    found = await all_rows(
        engine, select(alert.c.detector, alert.c.incident_id, transition.c.muted).join_from(transition, alert).order_by(transition.c.id)
    )
    assert {row["detector"] for row in found} >= {"non_finite", "no_signal"} and {row["incident_id"] for row in found} == {story["id"]}
    assert {row["muted"] for row in found if row["detector"] == "no_signal"} == {"non_finite explains it"}
    assert len(await all_rows(engine, select(delivery))) == 1

    await feed.rows([{**row, "adv.nonzero_frac": 0.9} for row in good(12)])
    await judge_all(worker)
    (story,) = await all_rows(engine, select(incident))
    assert story["state"] == "resolved" and story["resolved_step"] is not None
    assert len(await all_rows(engine, select(delivery))) == 2


async def test_silences_and_routes_decide_who_is_told_and_muting_changes_no_state(engine: AsyncEngine) -> None:
    async with engine.begin() as conn:
        until = datetime.now(UTC) + timedelta(hours=1)
        await conn.execute(insert(silence).values(matcher={"run": "quiet"}, reason="known", author="ada", until=until))
    for uid in ("quiet", "loud"):
        feed = await Feed(engine, uid, tags=["prod"] if uid == "loud" else []).start()
        await feed.rows(good(3) + broken(1))
    other = Webhook("other", "http://127.0.0.1:9/never-called", private=True)
    worker = Worker(engine, [NOWHERE, other], routes=[Route(("other",), {"tag": "prod"}), Route(("webhook",), {"project": "elsewhere"})])
    await judge_all(worker)
    query = select(run.c.uid, transition.c.to_state, transition.c.muted, delivery.c.channel)
    found = await all_rows(
        engine, query.join_from(transition, run).outerjoin(delivery, delivery.c.transition_id == transition.c.id).order_by(run.c.id)
    )
    assert [row["to_state"] for row in found] == ["critical", "critical"]
    assert found[0]["muted"].startswith("silenced by ada until ") and found[0]["channel"] is None
    assert (found[1]["muted"], found[1]["channel"]) == (None, "other")
    assert {row["severity"] for row in await all_rows(engine, select(evaluation.c.severity))} == {"critical"}


async def test_a_change_of_regime_starts_baselines_anew(engine: AsyncEngine) -> None:
    feed = await Feed(engine, "r1").start()
    await feed.rows(good(5))
    worker = Worker(engine, [])
    await judge_all(worker)
    await feed.rows([], events=[wire.Event(at=1.77e9, kind="regime", step=5, detail={"max_length": 512})])
    await feed.rows(good(1))
    await judge_all(worker)
    (said,) = await all_rows(engine, select(evaluation))
    assert said["rows"] == 6 and len(said["state"]["detect"]["history"]["opt.loss"]["x"]) == 1
