"""A Slack bot keeps an incident in one thread, at a receiver that answers as Slack does."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from receiving import Receiver
from runs import Feed, broken, good
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine
from test_delivery import PACE, rows_of, until_sent, working

from monitor.deliver.channel import MessageRefused, TransportError
from monitor.deliver.slack_bot import SlackBot, meaning
from monitor.deliver.trial import Trial
from monitor.store.tables import delivery_attempt, thread
from monitor.worker import Worker

TOKEN = "xoxb-HUSH"


def slack(script: dict[int, Any] | None = None) -> Receiver:
    """Every message gets the next time stamp, but those that the script answers otherwise."""
    return Receiver(lambda n: (script or {}).get(n, {"ok": True, "channel": "C0RL", "ts": f"{n}.000"}))


def bot(receiver: Receiver) -> SlackBot:
    return SlackBot("oncall", TOKEN, "#rl-alerts", api=receiver.url.replace("/hooks/SECRET-PATH", "/api/"), private=True, timeout_s=2.0)


async def story(engine: AsyncEngine, receiver: Receiver, attempts: int = 2) -> list[Any]:
    """A critical alert and its resolution; what the receiver got."""
    feed = await Feed(engine, "r1").start()
    async with working(Worker(engine, [bot(receiver)], link="http://127.0.0.1:8900", pace=PACE)):
        await feed.rows(good(8) + broken(1))
        await until_sent(engine, 1)
        await feed.rows(good(10))
        await until_sent(engine, attempts)
    return receiver.requests


async def test_what_follows_goes_into_the_thread_and_the_first_message_says_how_it_stands(engine: AsyncEngine) -> None:
    with slack() as receiver:
        first, answer, update = await story(engine, receiver)
    assert [each.path for each in (first, answer, update)] == ["/api/chat.postMessage"] * 2 + ["/api/chat.update"]
    assert all(each.headers["authorization"] == f"Bearer {TOKEN}" for each in (first, answer, update))
    assert first.json["channel"] == "#rl-alerts" and "thread_ts" not in first.json and first.json["text"].startswith("Critical: ")
    assert answer.json["channel"] == "C0RL" and answer.json["thread_ts"] == "1.000" and answer.json["text"].startswith("Resolved: ")
    assert answer.json["reply_broadcast"] is False and "reply_broadcast" not in first.json
    assert update.json["channel"] == "C0RL" and update.json["ts"] == "1.000"
    header, latest, *rest = update.json["blocks"]
    assert "Over: Gradient norm is not" in header["text"]["text"] and "Latest: Resolved: " in latest["elements"][0]["text"]
    assert rest == first.json["blocks"][1:]
    assert "▁" in first.body.decode() or "×" in str(first.json)
    stored = str(await rows_of(engine, select(thread))) + str(await rows_of(engine, select(delivery_attempt)))
    assert "1.000" in stored and TOKEN not in stored


async def test_another_worker_finds_the_thread_and_an_update_that_fails_costs_nothing(engine: AsyncEngine) -> None:
    feed = await Feed(engine, "r1").start()
    with slack({3: {"ok": False, "error": "cant_update_message"}}) as receiver:
        await feed.rows(good(3) + broken(1))
        async with working(Worker(engine, [bot(receiver)], pace=PACE)):
            await until_sent(engine, 1)
        await feed.rows(good(10))
        async with working(Worker(engine, [bot(receiver)], pace=PACE)):
            await until_sent(engine, 2)
        assert [each.json.get("thread_ts") for each in receiver.requests] == [None, "1.000", None]
    notes = [row["error"] for row in await rows_of(engine, select(delivery_attempt).order_by(delivery_attempt.c.at))]
    assert notes[0] is None and "stayed as it was: Slack answered cant_update_message" in notes[1]


async def test_a_first_message_that_is_gone_begins_a_new_thread(engine: AsyncEngine) -> None:
    with slack({2: {"ok": False, "error": "thread_not_found"}}) as receiver:
        requests = await story(engine, receiver)
    assert [each.json.get("thread_ts") for each in requests] == [None, "1.000", None]
    assert requests[2].json["channel"] == "#rl-alerts"
    (kept,) = await rows_of(engine, select(thread.c.reference))
    assert kept["reference"]["ts"] == "3.000"


async def test_slack_is_asked_again_after_it_was_busy(engine: AsyncEngine) -> None:
    with slack({1: (429, {"Retry-After": "1"}), 2: {"ok": False, "error": "internal_error"}}) as receiver:
        requests = await story(engine, receiver)
        assert requests[1].at - requests[0].at >= 1.0
    outcomes = [row["outcome"] for row in await rows_of(engine, select(delivery_attempt).order_by(delivery_attempt.c.at))]
    assert outcomes == ["failed", "failed", "delivered", "delivered"]


@pytest.mark.parametrize(
    ("error", "permanent", "refused"),
    [
        ("invalid_auth", True, False),
        ("not_in_channel", True, False),
        ("invalid_blocks", True, True),
        ("ratelimited", False, False),
        ("<b>", True, False),
    ],
)
def test_what_slack_says_is_understood(error: str, permanent: bool, refused: bool) -> None:
    found = meaning(error)
    assert found.permanent is permanent and isinstance(found, MessageRefused) is refused and "<" not in str(found)


async def test_a_server_that_is_not_slack_is_told() -> None:
    with Receiver(lambda n: 200) as receiver:
        asked = bot(receiver)
        with pytest.raises(TransportError, match="did not answer as Slack does") as caught:
            await asked.send(Trial(str(uuid4()), datetime.now(UTC), "oncall"))
        await asked.close()
    assert caught.value.permanent and TOKEN not in str(caught.value) and TOKEN not in repr(asked)
