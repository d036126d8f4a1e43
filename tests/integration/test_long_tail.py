"""Alerts through apprise at a real HTTP receiver."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

import pytest
from receiving import Receiver
from runs import Feed
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine
from test_delivery import ONE_STORY, PACE, rows_of, until_sent, working

from monitor.deliver.channel import ChannelError, TransportError
from monitor.deliver.long_tail import LongTail
from monitor.deliver.trial import Trial
from monitor.store.tables import channel, delivery_attempt
from monitor.worker import Worker


def apprised(receiver: Receiver) -> LongTail:
    return LongTail("tail", receiver.url.replace("http://", "json://"), private=True, timeout_s=5.0)


async def test_an_alert_arrives_after_failures(engine: AsyncEngine) -> None:
    feed = await Feed(engine, "r1").start()
    with Receiver(lambda n: [500, "cut", 404][n - 1] if n <= 3 else 200) as receiver:
        await feed.rows(ONE_STORY)
        async with working(Worker(engine, [apprised(receiver)], link="http://127.0.0.1:8900", pace=PACE)):
            await until_sent(engine, 2)
        sent = [request.json for request in receiver.taken]
    assert [each["type"] for each in sent] == ["failure", "success"]
    assert sent[0]["title"].startswith("Critical: ") and "First remedy: " in sent[0]["message"] and "/run/r1?step=3" in sent[0]["message"]
    attempts = await rows_of(engine, select(delivery_attempt).order_by(delivery_attempt.c.at))
    assert [row["outcome"] for row in attempts] == ["failed"] * 3 + ["delivered"] * 2
    stored = str(attempts) + str(await rows_of(engine, select(channel)))
    assert "JSON did not take the message" in stored and "SECRET" not in stored


async def test_a_service_that_hangs_is_given_up() -> None:
    with Receiver(lambda n: "hang", hang_s=2.0) as receiver:
        hung = LongTail("tail", receiver.url.replace("http://", "json://"), private=True, timeout_s=0.3)
        with pytest.raises(TransportError, match=r"within 0\.3 s"):
            await hung.send(Trial(str(uuid4()), datetime.now(UTC), "tail"))
    assert "SECRET" not in repr(hung)


@pytest.mark.parametrize(
    "url",
    [
        "json://127.0.0.1:9/HUSH",
        "xml://10.1.2.3/HUSH",
        "form://localhost/HUSH",
        "gotify://192.168.1.2/HUSH",
        "mailto://a:HUSH@example.org?smtp=127.0.0.1",
    ],
)
def test_a_service_in_the_private_network_needs_leave(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(ChannelError, match="VITALS_ALLOW_PRIVATE_WEBHOOKS") as caught:
        LongTail("tail", url)
    assert "HUSH" not in str(caught.value)
    assert LongTail("tail", url, private=True)


async def test_a_name_that_leads_into_the_private_network_is_refused_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    with Receiver() as receiver:
        port = receiver.url.split(":")[2].split("/")[0]
        monkeypatch.setattr("monitor.deliver.long_tail.refuse_private", lambda host: None)  # as for a name that only a name server knows
        named = LongTail("tail", f"json://localhost:{port}/x")
        with pytest.raises(TransportError, match="private address") as caught:
            await named.send(Trial(str(uuid4()), datetime.now(UTC), "tail"))
        assert caught.value.permanent and not receiver.requests


def test_a_service_of_its_own_host_needs_no_leave() -> None:
    for url in ("tgram://123456789:abcdefg_hijklmnop/123", "discord://1234567890123456789/abcdefghijklmnopqrstuvwxyz", "ntfy://topic"):
        assert LongTail("tail", url)


def test_an_unknown_address_is_told_without_repeating_it() -> None:
    with pytest.raises(ChannelError, match="does not know this address") as caught:
        LongTail("tail", "no-such-service://HUSH")
    assert "HUSH" not in str(caught.value)
