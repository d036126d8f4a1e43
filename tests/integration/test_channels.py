"""Testing a channel from the terminal and over HTTP, and telling again what nobody has acknowledged."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from receiving import Receiver
from runs import Feed, broken, good, until
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine
from test_delivery import PACE, rows_of, until_sent, webhook, working

from monitor.alerts.routing import Route
from monitor.api import app as application
from monitor.cli import main
from monitor.settings import load
from monitor.store import incidents
from monitor.store.tables import delivery, delivery_attempt
from monitor.worker import Worker

TOKEN = "0123456789abcdef"


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with one channel, ``oncall``, whose address is in ``oncall.url``."""
    (tmp_path / "vitals.toml").write_text('[channel.oncall]\nkind = "webhook"\nurl_file = "oncall.url"\n')
    monkeypatch.setenv("VITALS_RULES", str(tmp_path / "vitals.toml"))
    monkeypatch.setenv("VITALS_ALLOW_PRIVATE_WEBHOOKS", "1")
    return tmp_path


def test_the_terminal_tests_a_channel(rules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Receiver(lambda n: [204, 404][n - 1]) as receiver:
        (rules / "oncall.url").write_text(receiver.url)
        assert main(["channel", "list"]) == 0
        assert capsys.readouterr().out.split() == ["oncall", "webhook", "at", "127.0.0.1,", "not", "signed"]
        assert main(["channel", "test", "oncall"]) == 0
        assert capsys.readouterr().out.startswith("oncall: delivered in ")
        assert receiver.requests[0].json["type"] == "channel.test" and "This is a test" in receiver.requests[0].json["data"]["text"]
        assert main(["channel", "test", "oncall"]) == 1
        said = capsys.readouterr().err
        assert said.startswith("vitals channel: oncall: 127.0.0.1 answered 404") and "SECRET" not in said and said.count("\n") == 1
        assert main(["channel", "test", "on-call"]) == 2 and "set up: oncall" in capsys.readouterr().err
        assert main(["channel", "test"]) == 2
    (rules / "oncall.url").unlink()
    assert main(["channel", "list"]) == 2 and "oncall.url cannot be read" in capsys.readouterr().err


async def test_the_page_tests_a_channel_with_the_token_only(engine: AsyncEngine, rules: Path) -> None:
    settings = load(token=TOKEN)
    transport = httpx.ASGITransport(application.build(settings, engine))
    with Receiver(lambda n: [204, "cut"][n - 1]) as receiver:
        (rules / "oncall.url").write_text(receiver.url)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1/api/v1") as client:
            assert (await client.post("/channels/oncall/test")).status_code == 401 and not receiver.requests
            client.headers["Authorization"] = f"Bearer {TOKEN}"
            found = (await client.post("/channels/oncall/test")).json()
            assert found["delivered"] is True and found["status"] == 204 and found["latency_ms"] > 0 and found["error"] is None
            lost = (await client.post("/channels/oncall/test")).json()
            assert lost["delivered"] is False and "the connection to 127.0.0.1 failed" in lost["error"] and "SECRET" not in str(lost)
            assert (await client.post("/channels/nobody/test")).status_code == 404
            (listed,) = (await client.get("/channels")).json()
            assert (listed["name"], listed["set_up"], listed["about"]) == ("oncall", True, "webhook at 127.0.0.1, not signed")
            (rules / "oncall.url").unlink()
            wrong = await client.post("/channels/oncall/test")
            assert wrong.status_code == 409 and "oncall.url cannot be read" in wrong.json()["error"]
            assert (await client.get("/channels")).status_code == 200
            assert (await client.delete("/channels/oncall")).status_code == 404


async def test_a_critical_alarm_is_told_again_until_somebody_acknowledges_it(engine: AsyncEngine) -> None:
    routes = [Route(("webhook",), repeat_s=0.5), Route(("quiet",))]
    feed = await Feed(engine, "r1").start()
    with Receiver() as receiver, Receiver() as quiet:
        await feed.rows(good(3) + broken(1))
        async with working(Worker(engine, [webhook(receiver), webhook(quiet, "quiet")], routes=routes, pace=PACE)):
            await until(lambda: len(receiver.taken) >= 3)
            async with engine.begin() as conn:
                (found,) = await incidents.incidents(conn)
                await incidents.acknowledge(conn, found.uid, "ada")
            await until_sent(engine, 2)
            told = len(receiver.taken)
            await asyncio.sleep(1.2)
        assert len(receiver.taken) == told and len(quiet.taken) == 1
        first, *again = receiver.taken
        assert [each.json["data"]["reason"] for each in receiver.taken] == ["opened"] + ["repeated"] * len(again)
        assert len({each.id for each in receiver.taken}) == told
        assert all(after.at - before.at >= 0.5 for before, after in zip(receiver.taken, again, strict=False))
        assert {each.json["data"]["alert"] for each in again} == {first.json["data"]["alert"]}
    rows = {row["channel"]: row for row in await rows_of(engine, select(delivery))}
    assert rows["webhook"]["repeats"] == told - 1 and rows["quiet"]["repeats"] == 0
    attempts = await rows_of(engine, select(delivery_attempt).where(delivery_attempt.c.delivery_id == rows["webhook"]["id"]))
    assert sorted(row["attempt"] for row in attempts) == list(range(1, told + 1)) and {row["outcome"] for row in attempts} == {"delivered"}


async def test_nothing_is_told_again_that_is_over_silenced_or_of_a_run_that_ended(engine: AsyncEngine) -> None:
    routes = [Route(("webhook",), repeat_s=0.3)]
    over, silenced, open_ = [await Feed(engine, uid).start() for uid in ("over", "silenced", "open")]
    with Receiver() as receiver:
        for feed in (over, silenced, open_):
            await feed.rows(good(3) + broken(1))
        await over.rows(good(10))
        worker = Worker(engine, [webhook(receiver)], routes=routes, pace=PACE)
        while await worker.evaluate():
            pass
        async with engine.begin() as conn:
            await incidents.add_silence(conn, {"run": "silenced"}, datetime.now(UTC) + timedelta(hours=1), "ada", "known")
        async with working(worker):
            await until(lambda: len([each for each in receiver.taken if each.json["data"]["reason"] == "repeated"]) >= 3)
        again = {each.json["data"]["run"] for each in receiver.taken if each.json["data"]["reason"] == "repeated"}
        assert again == {"open"}
