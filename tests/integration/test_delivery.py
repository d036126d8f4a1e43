"""Alerts against receivers that misbehave in every way HTTP allows: each arrives, once per id, in order, and not more often than allowed."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

from receiving import Receiver
from runs import Feed, broken, good, until
from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncEngine
from standardwebhooks import Webhook as Verifier

from monitor import wire
from monitor.deliver.retry import Policy
from monitor.deliver.slack import Slack
from monitor.deliver.webhook import Webhook
from monitor.store import database, deliveries, embedded
from monitor.store.tables import alert, channel, delivery, delivery_attempt, incident, transition
from monitor.worker import Pace, Worker, compose

SECRET = "whsec_" + b64encode(b"0123456789abcdef0123456789abcdef").decode()
QUICK = Policy(base_s=0.05, cap_s=0.2, trip=3, rest_s=0.1, rest_cap_s=0.2, disabled_s=0.3, asked_cap_s=1.0)
PACE = Pace(idle_s=0.02, lease_s=60, policy=QUICK)
ONE_STORY = good(3) + broken(1) + good(10)
"""A critical alert and its resolution: two messages per channel."""


def webhook(receiver: Receiver, name: str = "webhook", timeout_s: float = 10.0) -> Webhook:
    return Webhook(name, receiver.url, SECRET, private=True, timeout_s=timeout_s)


@asynccontextmanager
async def working(worker: Worker) -> AsyncIterator[None]:
    stop = asyncio.Event()
    task = asyncio.create_task(worker.run(stop))
    try:
        yield
    finally:
        stop.set()
        await task


async def until_sent(engine: AsyncEngine, n: int, state: str = "sent") -> None:
    query = select(func.count()).select_from(delivery).where(delivery.c.state == state)

    async def sent() -> bool:
        async with engine.connect() as conn:
            return bool((await conn.execute(query)).scalar_one() >= n)

    await until(sent)


async def rows_of(engine: AsyncEngine, query):
    async with engine.connect() as conn:
        return (await conn.execute(query)).mappings().all()


async def test_a_receiver_that_fails_in_every_way_gets_every_alert_once_and_in_order(engine: AsyncEngine) -> None:
    script = [500, 503, "hang", "cut", "drip", (429, {"Retry-After": "30"}), (301, {"Location": "http://127.0.0.1:9/"}), 404, 410, 401]
    runs = [await Feed(engine, f"r{i}").start() for i in range(3)]
    with Receiver(lambda n: script[n - 1] if n <= len(script) else 204) as receiver:
        for feed in runs:
            await feed.rows(ONE_STORY)
        async with working(Worker(engine, [webhook(receiver, timeout_s=3.0)], pace=PACE)):
            await until_sent(engine, 6)
        taken = receiver.taken
        assert len(receiver.requests) == len(script) + 6 and len({r.id for r in taken}) == len(taken) == 6
        for feed in runs:
            assert [r.json["type"] for r in taken if r.json["data"]["run"] == feed.uid] == ["alert.critical", "alert.resolved"]
        for request in receiver.requests:
            Verifier(SECRET).verify(request.body, request.headers)
            assert request.json["data"]["id"] == request.id
        slowed = next(i for i, r in enumerate(receiver.requests) if isinstance(r.answer, tuple) and r.answer[0] == 429)
        assert receiver.requests[slowed + 1].at - receiver.requests[slowed].at >= 1.0
    attempts = await rows_of(engine, select(delivery_attempt))
    assert len(attempts) == len(receiver.requests)
    outcomes = [row["outcome"] for row in attempts]
    assert outcomes.count("delivered") == 6 and outcomes.count("failed") == len(script) and "sending" not in outcomes
    assert all(row["status"] == 204 and row["latency_ms"] > 0 for row in attempts if row["outcome"] == "delivered")
    (health,) = await rows_of(engine, select(channel))
    assert health["state"] == "ok" and health["failures"] == 0 and health["last_ok_at"] is not None


async def test_nothing_is_sent_more_often_than_the_backoff_allows(engine: AsyncEngine) -> None:
    """One message at a time, two workers: the pause before each request is at least what the answers before it demand, by their own arithmetic."""
    policy = Policy(base_s=0.2, cap_s=0.8, trip=3, rest_s=0.3, rest_cap_s=0.6, disabled_s=0.9, asked_cap_s=1.2)
    pace, gone, moved = Pace(idle_s=0.01, lease_s=60, policy=policy), 404, (301, {"Location": "http://127.0.0.1:9/"})
    script = [500, 503, 204, "hang", "cut", (429, {"Retry-After": "30"}), moved, 500, gone, 204, 410, 500, 204]
    feed = await Feed(engine, "r1").start()
    await feed.rows(ONE_STORY + broken(1))
    with Receiver(lambda n: script[n - 1] if n <= len(script) else 204) as receiver:
        hooks = [webhook(receiver, timeout_s=3.0) for _ in range(2)]
        async with working(Worker(engine, hooks[:1], pace=pace)), working(Worker(engine, hooks[1:], pace=pace)):
            await until_sent(engine, 3)
        requests = receiver.requests
    assert len(requests) == len(script)
    assert [r.json["type"] for r in receiver.taken] == ["alert.critical", "alert.resolved", "alert.critical"]
    attempt = in_a_row = 0
    for before, after in pairwise(requests):
        attempt, in_a_row = (0, 0) if before.answer == 204 else (attempt + 1, in_a_row + 1)
        demanded = [0.0]
        if in_a_row:
            demanded.append(min(0.8, 0.2 * 2 ** (attempt - 1)) / 2)
            demanded.append(0.9 if before.answer in (404, 410, moved) else 0.0)
            demanded.append(1.2 if before.answer == (429, {"Retry-After": "30"}) else 0.0)
            demanded.append(min(0.6, 0.3 * 2 ** (in_a_row - 3)) if in_a_row >= 3 else 0.0)
        assert after.at - before.at >= max(demanded), (before.answer, attempt, in_a_row)
        assert (after.id == before.id) == (before.answer != 204)


async def test_a_failing_receiver_is_not_hammered(engine: AsyncEngine) -> None:
    """Ten alerts wait for a dead receiver: it sees the first burst, then one probe per rest, whoever has the work."""
    runs = [await Feed(engine, f"r{i}").start() for i in range(10)]
    policy = Policy(base_s=0.01, cap_s=0.01, trip=3, rest_s=0.5, rest_cap_s=0.5, disabled_s=9)
    pace = Pace(idle_s=0.01, lease_s=60, sends=4, policy=policy)
    for feed in runs:
        await feed.rows(good(3) + broken(1))
    judge = Worker(engine, [Webhook("webhook", "http://127.0.0.1:9/", private=True)])
    while await judge.evaluate():
        pass
    with Receiver(lambda n: 503) as receiver:
        began = asyncio.get_running_loop().time()
        async with working(Worker(engine, [webhook(receiver)], pace=pace)), working(Worker(engine, [webhook(receiver)], pace=pace)):
            await until(lambda: len(receiver.requests) >= 4)
            await asyncio.sleep(2.2)
        lasted = asyncio.get_running_loop().time() - began
        assert len(receiver.requests) <= 2 * 4 + 1 + lasted / 0.5
    (health,) = await rows_of(engine, select(channel))
    assert health["state"] == "resting" and health["failures"] >= 3 and "503" in health["last_error"]
    assert {row["state"] for row in await rows_of(engine, select(delivery.c.state))} == {"pending"}


async def test_a_refused_message_blocks_nothing_after_it(engine: AsyncEngine) -> None:
    feed = await Feed(engine, "r1").start()
    with Receiver(lambda n: 400 if n == 1 else 204) as receiver:
        await feed.rows(ONE_STORY)
        async with working(Worker(engine, [webhook(receiver)], pace=PACE)):
            await until_sent(engine, 1)
        assert [r.json["type"] for r in receiver.taken] == ["alert.resolved"] and len(receiver.requests) == 2
    states = await rows_of(engine, select(delivery.c.state, delivery.c.last_error).order_by(delivery.c.id))
    assert [row["state"] for row in states] == ["refused", "sent"] and "400" in states[0]["last_error"]


async def test_one_receivers_failure_sends_nothing_again_to_another(engine: AsyncEngine) -> None:
    feed = await Feed(engine, "r1").start()
    with Receiver(lambda n: 503 if n <= 4 else 204) as ill, Receiver() as well:
        await feed.rows(ONE_STORY)
        async with working(Worker(engine, [webhook(ill, "ill"), webhook(well, "well")], pace=PACE)):
            await until_sent(engine, 4)
        assert len(well.requests) == 2 and len(ill.requests) == 6


async def test_redirects_are_not_followed(engine: AsyncEngine) -> None:
    feed = await Feed(engine, "r1").start()
    with Receiver() as elsewhere, Receiver(lambda n: (307, {"Location": elsewhere.url})) as receiver:
        await feed.rows(good(3) + broken(1))
        async with working(Worker(engine, [webhook(receiver)], pace=PACE)):
            await until(lambda: bool(receiver.requests))
            await asyncio.sleep(0.2)
        assert not elsewhere.requests
    (health,) = await rows_of(engine, select(channel))
    assert health["state"] == "disabled" and "redirect" in health["last_error"]


async def test_a_worker_that_died_after_sending_leads_to_the_same_message_again(engine: AsyncEngine) -> None:
    feed = await Feed(engine, "r1").start()
    with Receiver() as receiver:
        await feed.rows(good(3) + broken(1))
        one, hook = Worker(engine, [webhook(receiver)], pace=PACE), webhook(receiver)
        await one.evaluate()
        async with engine.begin() as conn:
            (due,) = await deliveries.lease(conn, "webhook", 5, 60, 3)
        await hook.send(compose(due, ""))
        await hook.close()
        assert not await one.deliver(one.channels[0])
        async with engine.begin() as conn:
            await conn.execute(update(delivery).values(leased_until=func.now() - timedelta(seconds=1)))
        assert await one.deliver(one.channels[0])
        await one.channels[0].close()
        assert len(receiver.requests) == 2 and receiver.requests[0].id == receiver.requests[1].id
        assert receiver.requests[0].json == receiver.requests[1].json
    attempts = await rows_of(engine, select(delivery_attempt).order_by(delivery_attempt.c.attempt))
    assert [row["outcome"] for row in attempts] == ["sending", "delivered"]


async def test_slack_gets_the_verdict_the_rollout_and_the_link(engine: AsyncEngine) -> None:
    feed = await Feed(engine, "r1").start()
    turns = [wire.Turn("prompt", "0 should disable retries"), wire.Turn("agent", "return 3  # <!channel>")]
    rollouts = [wire.Rollout(3, 0, "worst", turns, {"task": 0.0}), wire.Rollout(2, 0, "best", turns, {"task": 1.0})]
    with Receiver(lambda n: 200) as receiver:
        await feed.rows(good(3) + broken(1), rollouts=rollouts)
        worker = Worker(engine, [Slack("slack", receiver.url, private=True)], link="http://127.0.0.1:8470", pace=PACE)
        async with working(worker):
            await until_sent(engine, 1)
        (request,) = receiver.requests
    assert request.headers["content-type"] == "application/json" and "webhook-id" not in request.headers
    sent = request.json
    assert sent["text"].startswith("Critical: ") and "repair / name of r1, step 3" in sent["text"]
    text = request.body.decode()
    assert "worst rollout of step 3 (task 0)" in text and "since step 3." in text
    (story,) = await rows_of(engine, select(incident))
    (ways,) = [block["elements"] for block in sent["blocks"] if block["type"] == "actions"]
    assert [(way["text"]["text"], way["url"], way.get("style")) for way in ways] == [
        ("Open the incident", f"http://127.0.0.1:8470/incident/{story['uid']}", "primary"),
        ("Open the run", "http://127.0.0.1:8470/run/r1?step=3", None),
    ]
    assert sent["blocks"][0]["type"] == "header" and any(b["type"] == "rich_text" for b in sent["blocks"])


async def test_private_targets_need_permission_and_the_alert_waits(engine: AsyncEngine) -> None:
    feed = await Feed(engine, "r1").start()
    with Receiver() as receiver:
        await feed.rows(good(3) + broken(1))
        elsewhere = receiver.url.replace("127.0.0.1", "127.1")  # a name that only looking it up shows to be private
        guarded = Worker(engine, [Webhook("webhook", elsewhere, SECRET)], pace=PACE)
        await guarded.evaluate()
        await guarded.deliver(guarded.channels[0])
        assert not receiver.requests
        (health,) = await rows_of(engine, select(channel))
        assert health["state"] == "disabled" and "VITALS_ALLOW_PRIVATE_WEBHOOKS" in health["last_error"]
        async with working(Worker(engine, [webhook(receiver)], pace=PACE)):
            await until_sent(engine, 1)
        assert len(receiver.requests) == 1


async def test_a_disabled_channel_is_tried_again_when_a_worker_starts(engine: AsyncEngine) -> None:
    feed = await Feed(engine, "r1").start()
    with Receiver(lambda n: 404 if n == 1 else 204) as receiver:
        await feed.rows(good(3) + broken(1))
        worker = Worker(engine, [webhook(receiver)], pace=Pace(policy=Policy(disabled_s=3600)))
        await worker.evaluate()
        await worker.deliver(worker.channels[0])
        await worker.channels[0].close()
        assert [(row["state"], row["rest_until"] is None) for row in await rows_of(engine, select(channel))] == [("disabled", False)]
        async with engine.begin() as conn:
            await deliveries.enable(conn, ["another"])
        assert [row["state"] for row in await rows_of(engine, select(channel))] == ["disabled"]
        async with engine.begin() as conn:
            await deliveries.enable(conn, ["webhook"])
        assert [(row["state"], row["rest_until"]) for row in await rows_of(engine, select(channel))] == [("ok", None)]


async def test_no_secret_reaches_the_log_or_the_database(engine: AsyncEngine, caplog) -> None:
    caplog.set_level(logging.DEBUG)
    feed = await Feed(engine, "r1").start()
    with Receiver(lambda n: 500 if n < 3 else 204) as receiver:
        await feed.rows(good(3) + broken(1))
        async with working(Worker(engine, [webhook(receiver)], pace=PACE)):
            await until_sent(engine, 1)
    stored = str(await rows_of(engine, select(delivery_attempt))) + str(await rows_of(engine, select(channel)))
    for text in (stored, "\n".join(r.getMessage() for r in caplog.records if "sqlalchemy" not in r.name)):
        assert "SECRET-PATH" not in text and SECRET not in text and SECRET.removeprefix("whsec_") not in text


async def test_what_another_version_stored_still_goes_out(engine: AsyncEngine) -> None:
    feed = await Feed(engine, "r1").start()
    with Receiver() as receiver:
        await feed.rows(ONE_STORY)
        worker = Worker(engine, [webhook(receiver)], pace=PACE)
        await worker.evaluate()
        async with engine.begin() as conn:
            older = transition.c.finding.op("-")("title").op("||")({"a field to come": 1})
            await conn.execute(update(transition).values(finding=older))
        async with working(worker):
            await until_sent(engine, 2)
        assert [r.json["type"] for r in receiver.taken] == ["alert.critical", "alert.resolved"]
    assert len(await rows_of(engine, select(alert))) == 1


async def test_what_came_of_an_attempt_is_recorded_when_the_database_is_back_and_nothing_is_sent_again(roomy_tmp: Path) -> None:
    """Postgres is killed while a message is under way: the receiver has it, the lease would hold for an hour."""
    server = embedded.start(roomy_tmp)
    await database.migrate(server.url)
    engine = database.create_engine(server.url)

    def answer(n: int) -> int:
        if n <= 2:
            os.kill(server.pid, signal.SIGKILL)
            assert server.process is not None
            server.process.wait()
        return 503 if n == 1 else 204

    try:
        feed = await Feed(engine, "r1").start()
        await feed.rows(good(3) + broken(1))
        with Receiver(answer) as receiver:
            async with working(Worker(engine, [webhook(receiver)], pace=Pace(lease_s=3600, policy=QUICK))):
                for requests in (1, 2):
                    await until(lambda requests=requests: len(receiver.requests) == requests)
                    await asyncio.to_thread(server.process.wait)
                    server = await asyncio.to_thread(embedded.start, roomy_tmp)
                await until_sent(engine, 1)
            assert len(receiver.requests) == 2 and len({request.id for request in receiver.requests}) == 1
        attempts = await rows_of(engine, select(delivery_attempt).order_by(delivery_attempt.c.attempt))
        assert [(row["outcome"], row["status"]) for row in attempts] == [("failed", 503), ("delivered", 204)]
    finally:
        await engine.dispose()
        server.stop()
