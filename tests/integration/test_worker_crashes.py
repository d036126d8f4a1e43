"""Two workers on one database, one of them killed with SIGKILL 200 times at random moments, while 50 runs raise and resolve alerts."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import random
from collections import Counter

from receiving import Receiver
from runs import Feed, broken, good, until
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncEngine

from monitor.alerts.judgement import context, judge
from monitor.deliver.retry import Policy
from monitor.deliver.webhook import Webhook
from monitor.detect.contract import Row
from monitor.store import database
from monitor.store.tables import alert, delivery, delivery_attempt, evaluation, run, transition
from monitor.worker import Pace, Worker

KILLS = 200
RUNS = 50
PACE = Pace(rows=4, idle_s=0.01, lease_s=1.0, policy=Policy(base_s=0.05, cap_s=0.2, rest_s=0.05, rest_cap_s=0.1))


def work(url: str, hook: str) -> None:
    """A worker process."""
    logging.disable()

    async def forever() -> None:
        engine = database.create_engine(url)
        await Worker(engine, [Webhook("webhook", hook, private=True, timeout_s=0.8)], pace=PACE).run(asyncio.Event())

    asyncio.run(forever())


def story(dice: random.Random) -> list[dict[str, float]]:
    """Rows of one run: collapses of random length with recoveries that are sometimes too short to count."""
    rows = good(dice.randint(0, 4))
    for _ in range(dice.randint(1, 3)):
        rows += broken(dice.randint(1, 3)) + good(dice.choice([2, 9, 10, 14, 25]))
    return rows


async def test_no_transition_is_lost_or_doubled_and_each_delivery_arrives(engine: AsyncEngine, database_url: str) -> None:
    dice = random.Random(7)
    spawn = multiprocessing.get_context("forkserver")
    spawn.set_forkserver_preload(["monitor.worker", "monitor.store.database", "receiving", "runs"])
    stories = {f"run-{i}": story(dice) for i in range(RUNS)}
    feeds = [await Feed(engine, uid).start() for uid in stories]
    with Receiver(lambda n: 503 if n % 17 == 0 else 204) as receiver:

        def start():
            process = spawn.Process(target=work, args=(database_url, receiver.url), daemon=True)
            process.start()
            return process

        workers = [start(), start()]
        feeding = asyncio.create_task(_feed(feeds, stories, KILLS * 0.1))
        for _ in range(KILLS):
            await asyncio.sleep(dice.uniform(0.02, 0.2))
            victim = dice.randrange(2)
            workers[victim].kill()
            await asyncio.to_thread(workers[victim].join)
            workers[victim] = start()
        await feeding
        await until(lambda: _finished(engine))
        for process in workers:
            process.kill()
            process.join()
        arrived = receiver.taken

    expected = {}
    for uid, rows in stories.items():
        judged = judge(uid, {}, (Row(i, i, values) for i, values in enumerate(rows)), context())
        expected |= {moved.uid: (uid, moved.from_state, moved.to_state, moved.step, moved.alarms) for moved in judged.transitions}
    async with engine.connect() as conn:
        columns = run.c.uid, transition.c.from_state, transition.c.to_state, transition.c.step
        found = await conn.execute(select(transition.c.uid, *columns).join_from(transition, run).order_by(transition.c.id))
        stored = {str(row[0]): tuple(row[1:]) for row in found}
        assert len(stored) == (await conn.execute(select(func.count()).select_from(transition))).scalar_one()
        sent = (await conn.execute(select(transition.c.uid, delivery.c.state).join_from(delivery, transition))).all()
        attempts = (await conn.execute(select(delivery_attempt))).all()
        alerts = (await conn.execute(select(alert.c.state))).scalars().all()
    assert stored == {uid: facts[:4] for uid, facts in expected.items()}
    alarms = {uid for uid, facts in expected.items() if facts[4]}
    assert len(alarms) > RUNS
    assert Counter(str(uid) for uid, _ in sent) == Counter(alarms) and {state for _, state in sent} == {"sent"}
    assert {request.id for request in arrived} == alarms
    assert len(arrived) - len(alarms) <= KILLS
    assert {(a.delivery_id, a.attempt) for a in attempts if a.outcome == "delivered"} and len(attempts) >= len(receiver.requests)
    print(f"{KILLS} kills, {len(stored)} transitions, {len(alarms)} deliveries, {len(arrived) - len(alarms)} of them taken twice")
    first = list(dict.fromkeys(request.id for request in arrived))
    for uid in stories:
        in_order = [key for key in stored if stored[key][0] == uid and key in alarms]
        assert [key for key in first if key in in_order] == in_order
    assert set(alerts) <= {"open", "resolved"}


async def _feed(feeds: list[Feed], stories: dict[str, list[dict[str, float]]], seconds: float) -> None:
    """Sends every story in small batches, all runs side by side, over about ``seconds``."""
    longest = max(len(rows) for rows in stories.values())
    for start in range(0, longest, 3):
        for feed in feeds:
            if rows := stories[feed.uid][start : start + 3]:
                await feed.rows(rows)
        await asyncio.sleep(seconds * 3 / longest)


async def _finished(engine: AsyncEngine) -> bool:
    unseen = select(func.count()).select_from(evaluation).join(run, run.c.id == evaluation.c.run_id).where(run.c.next_seq - 1 > evaluation.c.seq)
    pending = select(func.count()).select_from(delivery).where(delivery.c.state == "pending")
    async with engine.connect() as conn:
        return not (await conn.execute(unseen)).scalar_one() and not (await conn.execute(pending)).scalar_one()
