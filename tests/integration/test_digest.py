"""Too many alerts for a channel become one message, and those that a route gathers wait for theirs: each incident is accounted for."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from uuid import UUID

from receiving import Received, Receiver
from runs import Feed, broken, good
from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncEngine
from test_delivery import PACE, rows_of, until_sent, webhook, working

from monitor.alerts.routing import Route
from monitor.deliver.slack import Slack
from monitor.store import digests
from monitor.store.tables import delivery, delivery_attempt, digest, incident, transition
from monitor.worker import Pace, Worker

LINK = "http://127.0.0.1:8900"


def slack(receiver: Receiver, name: str = "slack") -> Slack:
    return Slack(name, receiver.url, private=True, timeout_s=2.0)


def gaps(requests: list[Received]) -> list[float]:
    return [after.at - before.at for before, after in pairwise(requests)]


async def due_now(engine: AsyncEngine) -> None:
    """The hour of the digests has come."""
    async with engine.begin() as conn:
        await conn.execute(update(delivery).where(delivery.c.state == "pending").values(due_at=func.now()))


async def test_a_thousand_incidents_at_once_reach_nobody_more_than_once_a_second_and_none_is_lost(engine: AsyncEngine) -> None:
    """Two workers, a Slack channel and a webhook with Slack's pace, whose digests name every change."""
    feeds = [await Feed(engine, f"r{i}", project=f"p{i % 3}").start() for i in range(1000)]
    for feed in feeds:
        await feed.rows(good(2) + broken(1))
    pace = Pace(idle_s=0.02, lease_s=10, crowd=10, digest_s=3.0)
    with Receiver(lambda n: 200) as chat, Receiver() as hooked:
        workers = []
        for _ in range(2):
            hook = webhook(hooked)
            hook.interval_s = 1.0
            workers.append(Worker(engine, [slack(chat), hook], link=LINK, pace=pace))
        async with working(workers[0]), working(workers[1]):
            await until_sent(engine, 2000)
        assert min(gaps(chat.requests) + gaps(hooked.requests)) >= 1.0
        posted, bodies = chat.taken, [request.json for request in hooked.taken]
    every = {str(row["uid"]) for row in await rows_of(engine, select(transition.c.uid))}
    told = Counter(each["id"] for body in bodies for each in body["data"].get("alerts", [body["data"]]))
    assert set(told) == every and set(told.values()) == {1} and len(every) == 1000
    texts = [request.json["text"] for request in posted]
    counts = [int(found[1].replace(",", "")) if (found := re.match(r"([\d,]+) changes of alerts at once", text)) else 1 for text in texts]
    assert sum(counts) == 1000 and max(counts) > 10 and len(counts) == len(posted) < 60
    big = posted[counts.index(max(counts))].body.decode()
    assert f"{LINK}/alerts" in big and "By project and detector" in big and "The worst" in big
    stored = await rows_of(
        engine, select(digest.c.uid, func.count().label("n")).join(delivery, delivery.c.digest_id == digest.c.id).group_by(digest.c.uid)
    )
    sizes = {str(row["uid"]): row["n"] for row in stored}
    (named,) = re.findall(rf"{LINK}/deliveries\?message=([0-9a-f-]+)", big)
    assert sizes[named] == max(counts)
    for body in bodies:
        if body["type"] == "alert.digest":
            async with engine.connect() as conn:
                kept = await digests.members(conn, UUID(body["data"]["id"]))
            assert [str(uid) for uid in kept] == [each["id"] for each in body["data"]["alerts"]] and sizes[body["data"]["id"]] == len(kept)
    attempts = await rows_of(engine, select(delivery_attempt.c.outcome, func.count().label("n")).group_by(delivery_attempt.c.outcome))
    assert {row["outcome"]: row["n"] for row in attempts} == {"delivered": 2000}


async def test_a_digest_that_fails_is_tried_again_as_it_was_and_what_is_new_waits_for_the_next(engine: AsyncEngine) -> None:
    feeds = [await Feed(engine, f"r{i}").start() for i in range(6)]
    for feed in feeds:
        await feed.rows(good(2) + broken(1))
    pace = Pace(idle_s=0.02, lease_s=5, policy=PACE.policy, crowd=3, digest_s=0.1)
    with Receiver(lambda n: [503, "cut"][n - 1] if n <= 2 else 204) as receiver:
        hook = webhook(receiver)
        hook.interval_s = 0.05
        worker = Worker(engine, [hook], pace=pace)
        while await worker.evaluate():
            pass
        await worker.deliver(hook)
        await feeds[0].rows(good(10))
        async with working(worker):
            await until_sent(engine, 7)
        ids = [request.id for request in receiver.requests]
        assert len(ids) == 4 and len(set(ids[:3])) == 1 and receiver.requests[0].body == receiver.requests[2].body
        assert [request.json["type"] for request in receiver.taken] == ["alert.digest", "alert.resolved"]
        assert len(receiver.taken[0].json["data"]["alerts"]) == 6
    outcomes = Counter(row["outcome"] for row in await rows_of(engine, select(delivery_attempt.c.outcome)))
    assert outcomes == {"failed": 12, "delivered": 7}


async def test_a_worker_that_died_with_a_digest_leads_to_the_same_digest_again(engine: AsyncEngine) -> None:
    feeds = [await Feed(engine, f"r{i}").start() for i in range(5)]
    for feed in feeds:
        await feed.rows(good(2) + broken(1))
    with Receiver() as receiver:
        hook = webhook(receiver)
        hook.interval_s = 0.05
        worker = Worker(engine, [hook], pace=Pace(idle_s=0.02, lease_s=5, crowd=3, digest_s=0.1))
        while await worker.evaluate():
            pass
        async with engine.begin() as conn:
            lost = await digests.lease(conn, "webhook", 0.3, 3, crowd=3)
        assert lost is not None and len(lost.members) == 5
        assert not await worker.deliver(hook)
        async with working(worker):
            await until_sent(engine, 5)
        (request,) = receiver.requests
        assert request.id == lost.uid and [each["id"] for each in request.json["data"]["alerts"]] == [each.uid for each in lost.members]


async def test_few_enough_go_one_by_one_at_the_channels_pace(engine: AsyncEngine) -> None:
    for i in range(3):
        await (await Feed(engine, f"r{i}").start()).rows(good(2) + broken(1))
    with Receiver(lambda n: 200) as chat:
        channel = slack(chat)
        channel.interval_s = 0.3
        async with working(Worker(engine, [channel], pace=PACE)):
            await until_sent(engine, 3)
        assert len(chat.taken) == 3 and min(gaps(chat.requests)) >= 0.3
        assert all(request.json["text"].startswith("Critical: ") for request in chat.taken)


async def test_a_route_gathers_what_is_less_than_an_alarm_for_its_hour(engine: AsyncEngine) -> None:
    routes = [Route(("slack",), severity="critical"), Route(("webhook",), severity="information", digest_s=3600.0)]
    calm = [{"opt.grad_norm": 0.5 + 0.01 * (i % 3), "opt.loss": 0.1} for i in range(80)]
    feed = await Feed(engine, "r1").start()
    with Receiver(lambda n: 200) as chat, Receiver() as hooked:
        async with working(Worker(engine, [slack(chat), webhook(hooked)], routes=routes, link=LINK, pace=PACE)):
            await feed.rows([*calm, {"opt.grad_norm": 9.0, "opt.loss": 0.1}, *good(12), *broken(1), *good(10)])
            await until_sent(engine, 2)
            waiting = await rows_of(engine, select(delivery).where(delivery.c.channel == "webhook"))
            assert not hooked.requests and {row["state"] for row in waiting} == {"pending"} and {row["digest_s"] for row in waiting} == {3600.0}
            assert len({row["due_at"] for row in waiting}) <= 2 and all(row["due_at"].timestamp() % 3600 == 0 for row in waiting)
            await due_now(engine)
            await until_sent(engine, 2 + len(waiting))
        data = [request.json["data"] for request in hooked.taken]
        assert {request.json["type"] for request in hooked.taken} == {"alert.digest"}
        assert [each["to"] for body in data for each in body["alerts"]] == ["information", "critical", "resolved"]
        assert "collected" in data[0]["title"] and data[0]["link"] == f"{LINK}/alerts"
        stories = {str(row["uid"]) for row in await rows_of(engine, select(incident))}
        assert {each["incident"] for body in data for each in body["alerts"] if each["to"] == "critical"} <= stories
        assert len(chat.taken) == 2
    assert not [row for row in await rows_of(engine, select(transition.c.muted)) if row["muted"]]
