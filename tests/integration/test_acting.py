"""Alarms that ask their run to stop: the request is born with the alarm, reaches a real client, and is only words in a dry run."""

from __future__ import annotations

import asyncio
import math
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from receiving import Receiver
from runs import Feed, broken, good, until
from serving import serving
from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncEngine

import monitor.client
from monitor import wire
from monitor.alerts.acting import Act
from monitor.alerts.rules import Rules
from monitor.deliver.webhook import Webhook
from monitor.store.tables import event, request, run, silence, transition
from monitor.worker import Pace, Worker

STOP = Act("stop", {"detector": "non_finite"}, dry_run=False)
NOWHERE = Webhook("webhook", "http://127.0.0.1:9/never-called", private=True)


async def judge(engine: AsyncEngine, *acts: Act) -> None:
    worker = Worker(engine, [NOWHERE], rules=Rules(acts=acts))
    while await worker.evaluate():
        pass


async def rows_of(engine: AsyncEngine, query: Any) -> list[Any]:
    async with engine.connect() as conn:
        return list((await conn.execute(query)).all())


async def asked(engine: AsyncEngine) -> list[str]:
    return [row.kind for row in await rows_of(engine, select(request.c.kind).order_by(request.c.id))]


def train(url: str, folder: Path, steps: int) -> int:
    """A training loop that is asked to stop, or not; returns how many steps it made."""
    with monitor.client.start("repair", "grpo", url=url, spool_dir=folder, accepts=["stop"]) as trained:
        for step in range(steps):
            trained.log({"opt.grad_norm": math.nan if step == 5 else 0.5, "opt.loss": 0.1})
            for _ in range(20):
                if trained.should_stop:
                    return step + 1
                time.sleep(0.01)
    return steps


@pytest.mark.parametrize("dry_run", [False, True])
async def test_a_client_stops_when_its_gradient_is_not_finite_and_not_in_a_dry_run(
    engine: AsyncEngine, database_url: str, tmp_path: Path, dry_run: bool
) -> None:
    act = Act("stop", {"detector": "non_finite"}, dry_run=dry_run)
    with Receiver() as receiver, serving(database_url) as url:
        hook, stop = Webhook("webhook", receiver.url, private=True), asyncio.Event()
        working = asyncio.create_task(Worker(engine, [hook], rules=Rules(acts=(act,)), pace=Pace(idle_s=0.02)).run(stop))
        steps = await asyncio.to_thread(train, url, tmp_path, 20 if dry_run else 1000)
        await until(lambda: bool(receiver.requests))
        stop.set()
        await working
    assert steps == 20 if dry_run else 5 < steps < 100
    said = receiver.requests[0].json["data"]
    assert said["detector"] == "non_finite"
    assert said["acted"] == ("The run would have been asked to stop (dry run)." if dry_run else "The run was asked to stop.")
    (noted,) = await rows_of(engine, select(event).where(event.c.kind == "act"))
    assert noted.step == 5 and noted.detail == {"request": "stop", "dry_run": dry_run, "detector": "non_finite", "severity": "critical"}
    assert await asked(engine) == ([] if dry_run else ["stop"])


async def test_only_what_the_run_accepts_is_asked_and_the_alert_says_what_was_not(engine: AsyncEngine) -> None:
    for uid, accepts in (("r1", ["checkpoint"]), ("r2", [])):
        await (await Feed(engine, uid, accepts=accepts).start()).rows(good(3) + broken(2))
    await judge(engine, Act("checkpoint", dry_run=False), STOP)
    said = dict(await rows_of(engine, select(run.c.uid, transition.c.acted).join_from(transition, run)))  # type: ignore[arg-type]
    assert said["r1"] == "The run was asked to checkpoint; was not asked to stop: the run accepts only checkpoint."
    assert said["r2"] == "The run was not asked to checkpoint: the run accepts no request; was not asked to stop: the run accepts no request."
    assert await asked(engine) == ["checkpoint"] and len(await rows_of(engine, select(event))) == 1


async def test_the_same_alarm_asks_once_and_a_later_one_again(engine: AsyncEngine) -> None:
    feed = await Feed(engine, "r1", accepts=["stop"]).start()
    await feed.rows(good(3) + broken(5))
    await judge(engine, STOP)
    assert await asked(engine) == ["stop"]
    await feed.rows(broken(2), events=[wire.Event(1.77e9, "request_done", 8, {"request": "stop"})])
    await judge(engine, STOP)
    assert await asked(engine) == ["stop"]
    await feed.rows(good(12) + broken(1))
    await judge(engine, STOP)
    assert await asked(engine) == ["stop", "stop"]
    # Each note took a number of its own: what the run sent after it has a later one.
    (seen,) = await rows_of(engine, select(run.c.next_seq))
    assert seen.next_seq == 1 + 23 + 3


async def test_whoever_silenced_an_alarm_wants_nothing_done_about_it(engine: AsyncEngine) -> None:
    async with engine.begin() as conn:
        until_then = datetime.now(UTC) + timedelta(hours=1)
        await conn.execute(insert(silence).values(matcher={"run": "r1"}, reason="known", author="ada", until=until_then))
    for uid in ("r1", "r2"):
        await (await Feed(engine, uid, accepts=["stop"]).start()).rows(good(3) + broken(1))
    await judge(engine, STOP)
    found = await rows_of(engine, select(run.c.uid, request.c.kind).join_from(run, request))
    assert found == [("r2", "stop")]
