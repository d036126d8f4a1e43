"""What people do about incidents, over HTTP, while workers judge."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

import httpx
import pytest
from runs import Feed, broken, good
from sqlalchemy import text, update
from sqlalchemy.ext.asyncio import AsyncEngine

from monitor.api import app as application
from monitor.deliver.webhook import Webhook
from monitor.settings import load
from monitor.store import incidents
from monitor.store.tables import delivery
from monitor.worker import Worker

NOWHERE = Webhook("webhook", "http://127.0.0.1:9/never-called", private=True)

NOBODY = UUID(int=0)


@pytest.fixture
async def client(engine: AsyncEngine) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(application.build(load(), engine))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1/api/v1") as client:
        yield client


async def judge(engine: AsyncEngine) -> None:
    worker = Worker(engine, [NOWHERE])
    while await worker.evaluate():
        pass


async def collapsed(engine: AsyncEngine, uid: str = "r1") -> Feed:
    feed = await Feed(engine, uid).start()
    await feed.rows(good(3) + broken(2))
    await judge(engine)
    return feed


async def get(client: httpx.AsyncClient, path: str, **params: Any) -> Any:
    answer = await client.get(path, params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_an_incident_is_listed_acknowledged_commented_and_marked(client: httpx.AsyncClient, engine: AsyncEngine) -> None:
    await collapsed(engine)
    (found,) = await get(client, "/incidents")
    assert (found["state"], found["severity"], found["run"], found["opened_step"]) == ("open", "critical", "r1", 3)
    assert found["lead"] == "Gradient norm is not a finite number" and found["alerts"][0]["finding"]["value"] == "NaN"
    place = f"/incidents/{found['uid']}"
    acknowledged = (await client.post(f"{place}/acknowledge", json={"author": "ada", "text": "on it"})).json()
    assert (acknowledged["state"], acknowledged["acknowledged_by"]) == ("acknowledged", "ada")
    assert (await client.post(f"{place}/comment", json={"author": "bob", "text": "lr was 10x"})).status_code == 200
    assert (await client.post(f"{place}/mark", json={"author": "ada", "verdict": "true"})).json()["mark"] == "true"
    one = await get(client, place)
    assert [(note["author"], note["kind"], note["text"]) for note in one["notes"]] == [
        ("ada", "acknowledge", "on it"),
        ("bob", "comment", "lr was 10x"),
        ("ada", "mark", "true alarm"),
    ]
    assert await get(client, "/incidents", state="open") == [] and len(await get(client, "/incidents", state="acknowledged", run="r1")) == 1
    released = (await client.post(f"{place}/release", json={"author": "bob"})).json()
    assert (released["state"], released["acknowledged_by"]) == ("open", None)
    assert (await client.post(f"{place}/mark", json={"author": "ada", "verdict": None})).json()["mark"] is None
    assert [note["kind"] for note in (await get(client, place))["notes"]][3:] == ["release", "mark"]
    assert await get(client, "/incidents", project="elsewhere") == []


async def test_the_brief_list_is_filtered_and_says_who_was_told(client: httpx.AsyncClient, engine: AsyncEngine) -> None:
    await collapsed(engine, "r1")
    async with engine.begin() as conn:
        await incidents.add_silence(conn, {"run": "r2"}, datetime.now(UTC) + timedelta(hours=1), "ada", "known")
    await collapsed(engine, "r2")
    told = {each["run"]: each for each in await get(client, "/incidents", brief=True)}
    assert told["r1"]["told"] == {"webhook": "pending"} and told["r1"]["muted"] is None
    assert told["r2"]["told"] == {} and "known" in told["r2"]["muted"]
    assert "finding" not in told["r1"]["alerts"][0] and told["r1"]["began"] == 3 and "nan" in told["r1"]["evidence"] and told["r1"]["advice"]
    await client.post(f"/incidents/{told['r1']['uid']}/acknowledge", json={})

    async def runs(**wanted: Any) -> list[str]:
        return sorted(each["run"] for each in await get(client, "/incidents", brief=True, **wanted))

    assert (await get(client, "/pulse"))["incidents"] == {"critical": 2}
    assert await runs(state="unresolved") == ["r1", "r2"] and await runs(state="open") == ["r2"]
    assert await runs(detector="non_finite", severity="critical") == ["r1", "r2"]
    assert await runs(detector="no_signal") == await runs(severity="warning") == await runs(q="finite nowhere") == await runs(q="%") == []
    assert await runs(q="FINITE r1") == ["r1"] and await runs(q="name of r2") == ["r2"]


async def test_closed_by_hand_it_is_told_and_stays_closed_while_the_condition_goes_on(client: httpx.AsyncClient, engine: AsyncEngine) -> None:
    feed = await collapsed(engine)
    (found,) = await get(client, "/incidents")
    closed = (await client.post(f"/incidents/{found['uid']}/resolve", json={"author": "ada", "text": "known"})).json()
    assert closed["state"] == "resolved" and closed["alerts"][0]["state"] == "resolved"
    await feed.rows(broken(30))
    await judge(engine)
    moved = (await get(client, "/transitions"))["transitions"]
    assert [(m["from_state"], m["to_state"], m["reason"]) for m in moved] == [("ok", "critical", "opened"), ("critical", "resolved", "by hand")]
    async with engine.connect() as conn:
        assert len((await conn.execute(delivery.select())).all()) == 2
    assert (await get(client, "/runs/r1"))["severity"] != "critical"
    again = await client.post(f"/incidents/{found['uid']}/resolve", json={})
    assert again.status_code == 422 and again.json()["error"] == "incident: is over already."
    await feed.rows(good(12) + broken(1))
    await judge(engine)
    (back,) = await get(client, "/incidents")
    assert back["state"] == "open" and back["uid"] == found["uid"] and back["acknowledged_by"] is None


async def test_whatever_people_do_changes_the_stamp_of_the_pulse(client: httpx.AsyncClient, engine: AsyncEngine) -> None:
    await collapsed(engine)
    (found,) = await get(client, "/incidents")
    stamps = [(await get(client, "/pulse"))["stamp"]]
    for verb, path, body in (
        ("POST", f"/incidents/{found['uid']}/acknowledge", {}),
        ("POST", f"/incidents/{found['uid']}/comment", {"text": "hm"}),
        ("POST", "/silences", {"matcher": {"run": "r1"}, "until": time.time() + 60, "reason": "known"}),
        ("DELETE", "/silences/1", None),
    ):
        assert (await client.request(verb, path, json=body)).status_code == 200
        stamps.append((await get(client, "/pulse"))["stamp"])
    assert all(before != after for before, after in pairwise(stamps))


async def test_a_silence_mutes_and_can_be_ended(client: httpx.AsyncClient, engine: AsyncEngine) -> None:
    made = await client.post(
        "/silences", json={"matcher": {"project": "rep*"}, "until": time.time() + 60, "author": "ada", "reason": "cluster moves"}
    )
    assert made.status_code == 200
    await collapsed(engine, "r1")
    (listed,) = await get(client, "/silences")
    assert listed["matcher"] == {"project": "rep*"} and listed["author"] == "ada"
    assert (await client.delete(f"/silences/{listed['id']}")).status_code == 200
    await collapsed(engine, "r2")
    muted = {m["run"]: m["muted"] for m in (await get(client, "/transitions"))["transitions"]}
    assert "cluster moves" in muted["r1"] and muted["r2"] is None
    assert (await client.delete(f"/silences/{listed['id']}")).status_code == 404


async def test_the_feed_gives_each_transition_once_and_none_too_early(client: httpx.AsyncClient, engine: AsyncEngine) -> None:
    feed = await collapsed(engine)
    first = await get(client, "/transitions")
    assert len(first["transitions"]) == 1
    assert (await get(client, "/transitions", after=first["cursor"])) == {"cursor": first["cursor"], "transitions": []}
    async with engine.connect() as conn:
        # A transaction that began earlier and is still open holds back whatever commits after it.
        await conn.execute(text("SELECT pg_current_xact_id()"))
        await feed.rows(good(10))
        await judge(engine)
        assert (await get(client, "/transitions", after=first["cursor"]))["transitions"] == []
    second = await get(client, "/transitions", after=first["cursor"])
    assert [m["to_state"] for m in second["transitions"]] == ["resolved"]


async def test_the_delivery_log_and_the_channels(client: httpx.AsyncClient, engine: AsyncEngine) -> None:
    await collapsed(engine)
    hook = Webhook("webhook", "http://127.0.0.1:9/", private=True)
    await Worker(engine, [hook]).deliver(hook)
    await hook.close()
    (attempt,) = await get(client, "/deliveries")
    assert (attempt["channel"], attempt["attempt"], attempt["outcome"], attempt["run"]) == ("webhook", 1, "failed", "r1")
    assert "127.0.0.1" in attempt["error"]
    (found,) = await get(client, "/incidents")
    assert len((await get(client, f"/incidents/{found['uid']}"))["deliveries"]) == 1
    (health,) = await get(client, "/channels")
    assert (health["name"], health["failures"], health["waiting"]) == ("webhook", 1, 1)
    assert await get(client, "/deliveries", channel="slack") == []


@pytest.mark.parametrize(
    ("verb", "path", "body", "status", "says"),
    [
        ("post", f"/incidents/{NOBODY}/acknowledge", {}, 404, "no incident"),
        ("get", f"/incidents/{NOBODY}", None, 404, "no incident"),
        ("get", "/incidents/seven", None, 422, "uid"),
        ("get", "/transitions?after=seven", None, 422, "cursor"),
        ("post", "/silences", {"matcher": {}, "until": 9e9, "reason": "r"}, 422, "must name something"),
        ("post", "/silences", {"matcher": {"colour": "red"}, "until": 9e9, "reason": "r"}, 422, "matcher.colour"),
        ("post", "/silences", {"matcher": {"run": "x"}, "until": 1.0, "reason": "r"}, 422, "in the future"),
        ("post", "/silences", {"matcher": {"run": "x"}, "until": 9e9, "reason": " "}, 422, "reason"),
        ("post", "/silences", {"matcher": {"run": 5}, "until": 9e9, "reason": "r"}, 422, "matcher"),
        ("post", "/silences", {"until": 9e9, "reason": "r"}, 422, "matcher: is missing"),
        ("delete", f"/silences/{2**70}", None, 404, "no silence"),
    ],
)
async def test_wrong_requests_get_one_sentence(client: httpx.AsyncClient, verb: str, path: str, body: Any, status: int, says: str) -> None:
    answer = await client.request(verb, path, json=body)
    assert answer.status_code == status and says in answer.json()["error"], answer.text


async def test_wrong_acts_on_an_incident(client: httpx.AsyncClient, engine: AsyncEngine) -> None:
    await collapsed(engine)
    (found,) = await get(client, "/incidents")
    place = f"/incidents/{found['uid']}"
    for path, body, field in (
        ("comment", {"text": " "}, "text"),
        ("mark", {"verdict": "maybe"}, "verdict"),
        ("comment", {"text": "x" * 10_001}, "text"),
        ("release", {}, "incident"),
        ("mark", {}, "verdict"),
    ):
        answer = await client.post(f"{place}/{path}", json=body)
        assert (answer.status_code, answer.json()["field"]) == (422, field)
    assert (await client.post(f"{place}/comment", content=b"{nonsense")).status_code == 400
    async with engine.begin() as conn:
        await conn.execute(update(incidents.incident).values(state="resolved"))
    assert (await client.post(f"{place}/acknowledge", json={})).status_code == 422
