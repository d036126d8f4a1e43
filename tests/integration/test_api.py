"""The collector over HTTP: what it stores, what it refuses and in which words."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncEngine

from monitor import wire
from monitor.api import app as application
from monitor.settings import load
from monitor.store import database
from monitor.store.tables import point

START: dict[str, Any] = {"run": "r", "attempt": "a", "project": "p", "name": "first", "started_at": 1.7e9}


def row(step: Any = 1, **values: Any) -> dict[str, Any]:
    return {"step": step, "at": 1.7e9, "values": values or {"loss": 1.0}}


def batch(*rows: Any, **rest: Any) -> dict[str, Any]:
    return {"attempt": "a", "seq": 1, "rows": list(rows)} | rest


def client_for(api: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(api, raise_app_exceptions=False), base_url="http://127.0.0.1:8900")


@pytest.fixture
async def client(engine: AsyncEngine) -> AsyncIterator[httpx.AsyncClient]:
    """A collector with one open run."""
    api = application.build(load(), engine)
    async with client_for(api) as client:
        assert (await client.post("/api/v1/runs", json=START)).status_code == 200
        yield client


async def post(client: httpx.AsyncClient, message: Any) -> httpx.Response:
    content = message if isinstance(message, bytes) else json.dumps(message).encode()
    return await client.post("/api/v1/runs/r/batches", content=content)


async def test_a_start_answers_where_the_run_can_be_seen(client: httpx.AsyncClient) -> None:
    assert (await client.post("/api/v1/runs", json=START)).json() == {"run": "r", "segment": 0, "url": "http://127.0.0.1:8900/run/r"}
    assert (await client.post("/api/v1/runs", json=START | {"attempt": "b"})).json()["segment"] == 1


async def test_the_wire_messages_are_understood(client: httpx.AsyncClient) -> None:
    message = wire.Batch(
        attempt="a",
        seq=1,
        rows=[wire.Row(step=1, at=1.7e9, values={"iw.max": float("inf"), "kl": float("nan"), "none": None})],
        rollouts=[wire.Rollout(step=1, ordinal=0, pick="best", turns=[wire.Turn("agent", "x")], rewards={"task": float("nan")}, advantage=-1.0)],
        events=[wire.Event(at=1.7e9, kind="regime", step=1, detail={"lr": [1e-5, float("inf")]})],
    )
    assert (await post(client, wire.to_json(message))).json() == {"accepted": 3, "duplicate": 0, "refused": [], "requests": []}
    end = wire.to_json(wire.RunEnd(attempt="a", state="finished", at=1.7e9))
    assert (await client.post("/api/v1/runs/r/finish", content=end)).json() == {"state": "finished"}


async def test_bare_nan_tokens_are_numbers(client: httpx.AsyncClient, engine: AsyncEngine) -> None:
    ack = await post(client, b'{"attempt":"a","seq":1,"rows":[{"step":1,"at":1,"values":{"a":NaN,"b":-Infinity,"c":1e999}}]}')
    assert ack.json()["accepted"] == 1
    async with engine.connect() as connection:
        assert str((await connection.scalars(select(point.c.vals))).one()) == "[nan, -inf, inf]"


@pytest.mark.parametrize(("apart", "speed"), [(0.001, None), (0.5, 2.0), (4.0, 0.25)])
async def test_a_speed_is_told_where_rows_span_a_second(client: httpx.AsyncClient, apart: float, speed: float | None) -> None:
    await post(client, batch(*({"step": step, "at": 1.7e9 + apart * step, "values": {"loss": 1.0}} for step in range(9))))
    (run,) = (await client.get("/api/v1/runs")).json()["runs"]
    assert run["speed"] == speed


BAD_ROWS: list[tuple[Any, str, str]] = [
    (row("five"), "step", "int"),
    (row(1.5), "step", "int"),
    (row(None), "step", "int"),
    (row(True), "step", "int"),
    (row(-1), "step", "negative"),
    (row(2**63), "step", "at most"),
    (row(10**30), "step", "at most"),
    (row(loss="abc"), "values.loss", "not a number"),
    (row(ok=1, loss=[1]), "values.loss", "number"),
    (row(loss=True), "values.loss", "number"),
    (row(loss={}), "values.loss", "number"),
    (row(loss=10**400), "values.loss", "too large"),
    (row(**{"x" * 10_000: 1}), f"values.{'x' * 40}", "10000 characters"),
    (row(**{f"m{i}": 1 for i in range(2001)}), "values", "at most 2000"),
    ({"step": 1, "at": 1.0, "values": {}}, "values", "empty"),
    ({"step": 1, "at": 1.0}, "values", "missing"),
    ({"at": 1.0, "values": {"a": 1}}, "step", "missing"),
    ({"step": 1, "at": "now", "values": {"a": 1}}, "at", "float"),
    ({"step": 1, "at": 1.7e12, "values": {"a": 1}}, "at", "seconds"),
    ({"step": 1, "at": 1.0, "values": [1]}, "values", "object"),
    ({"step": 1, "at": 1.0, "values": {"a": 1}, "hists": {"adv.hist": [1, "x"]}}, "hists.adv.hist", "int"),
    ("row", "body", "object"),
    (None, "body", "object"),
]


async def test_each_bad_row_is_refused_by_name_and_the_good_ones_are_kept(client: httpx.AsyncClient) -> None:
    for number, (bad, field, reason) in enumerate(BAD_ROWS):
        answer = await post(client, batch(row(2 * number), bad, row(2 * number + 1)))
        assert answer.status_code == 200
        ack = answer.json()
        assert ack["accepted"] == 2, bad
        (refusal,) = ack["refused"]
        assert (refusal["kind"], refusal["index"]) == ("row", 1)
        assert refusal["field"].startswith(field)
        assert reason in refusal["reason"]


async def test_refusals_keep_their_place_when_two_stages_refuse(client: httpx.AsyncClient) -> None:
    ack = (await post(client, batch(row("x"), row(1), row(-1), row([]), row(2, loss="abc"), row(3)))).json()
    assert ack["accepted"] == 2
    assert sorted(one["index"] for one in ack["refused"]) == [0, 2, 3, 4]


BAD_BATCHES: list[tuple[Any, int, str]] = [
    (b"", 400, "body"),
    (b"{", 400, "body"),
    (b"\xff\xfe", 400, "body"),
    (b'{"attempt": "\xff"}', 400, "body"),
    (b"[" * 200_000, 400, "body"),
    (b'{"a":' * 50_000, 400, "body"),
    (b"[]", 400, "body"),
    (b"null", 400, "body"),
    (b'{"seq": ' + b"1" * 10_000 + b"}", 400, "body"),
    ({"seq": 1}, 422, "attempt"),
    ({"attempt": 5, "seq": 1}, 422, "attempt"),
    ({"attempt": "a", "seq": "one"}, 422, "seq"),
    ({"attempt": "a", "seq": 1, "rows": {}}, 422, "rows"),
    ({"attempt": "a", "seq": 1, "rows": 5}, 422, "rows"),
    ({"attempt": "a", "seq": 1, "dropped": {"rows": "many"}}, 422, "dropped.rows"),
    (batch(*(row(i) for i in range(2001))), 422, "rows"),
    ({"attempt": "zzz", "seq": 1}, 404, "attempt"),
]


async def test_each_bad_batch_is_refused_with_a_sentence(client: httpx.AsyncClient) -> None:
    for message, status, field in BAD_BATCHES:
        answer = await post(client, message)
        assert (answer.status_code, answer.json()["field"]) == (status, field), answer.text
        assert answer.json()["error"].endswith(".")
        assert "Traceback" not in answer.text
    assert (await post(client, batch(row(1)))).json()["accepted"] == 1


async def test_an_unknown_run_is_told_to_start(client: httpx.AsyncClient) -> None:
    for path in ("batches", "finish"):
        message = batch() | {"state": "finished", "at": 1.0}
        answer = await client.post(f"/api/v1/runs/nobody/{path}", json=message)
        assert (answer.status_code, answer.json()["field"]) == (404, "run")
        assert "/api/v1/runs" in answer.json()["error"]


async def test_each_bad_start_names_its_field(client: httpx.AsyncClient) -> None:
    changes: list[tuple[dict[str, Any], str]] = [
        ({"signal": 5}, "signal"),
        ({"signal": "x"}, "signal"),
        ({"config": []}, "config"),
        ({"tags": [1]}, "tags[0]"),
        ({"run": "a/b"}, "run"),
        ({"started_at": float("nan")}, "started_at"),
        ({"started_at": None}, "started_at"),
    ]
    for change, field in changes:
        answer = await client.post("/api/v1/runs", content=json.dumps(START | change))
        assert (answer.status_code, answer.json()["field"]) == (422, field), change


async def test_a_bad_end_names_its_field(client: httpx.AsyncClient) -> None:
    answer = await client.post("/api/v1/runs/r/finish", json={"attempt": "a", "state": "exploded", "at": 1.0})
    assert (answer.status_code, answer.json()["field"]) == (422, "state")


@pytest.mark.parametrize("declared", [True, False])
async def test_a_large_body_is_refused_without_being_held(client: httpx.AsyncClient, declared: bool) -> None:
    size = 10 * 2**20

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(size // 2**16):
            yield b" " * 2**16

    answer = await client.post("/api/v1/runs/r/batches", content=chunks(), headers={"Content-Length": str(size)} if declared else {})
    assert (answer.status_code, answer.json()["field"]) == (413, "body")
    assert "8 MiB" in answer.json()["error"]


async def test_eight_mebibytes_are_not_too_much(client: httpx.AsyncClient) -> None:
    message = json.dumps(batch(row(1))).encode()
    assert (await post(client, message + b" " * (wire.MAX_BODY_BYTES - len(message)))).json()["accepted"] == 1


async def test_what_is_not_there_is_not_a_page(client: httpx.AsyncClient) -> None:
    for method, path in (("GET", "/api/nope"), ("POST", "/api/v1/nope"), ("GET", "/api/v1/runs/r/batches/more")):
        answer = await client.request(method, path)
        assert answer.status_code == 404
        assert "openapi.json" in answer.json()["error"]


async def test_a_dead_database_is_said_and_overcome(database_url: str) -> None:
    engine = database.create_engine(database_url, pool_size=2)
    api = application.build(load(), engine)
    async with client_for(api) as client:
        await client.post("/api/v1/runs", json=START)
        await post(client, batch(row(1)))
        async with database.opened(database.read_url(database_url).set(database="postgres")) as other, other.connect() as admin:
            admin = await admin.execution_options(isolation_level="AUTOCOMMIT")
            name = engine.url.database
            kill = text(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
            await admin.execute(text(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false"))
            await admin.execute(kill)
            answer = await post(client, batch(row(2)))
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
            assert "send it again" in answer.json()["error"]
            assert (await client.get("/healthz")).status_code == 503
            assert (await client.get("/api/v1/runs")).status_code == 503
            assert "vitals_database_up 0.0" in (await client.get("/metrics")).text
            await admin.execute(text(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true"))
        assert (await post(client, batch(row(1), row(2)))).json() == {"accepted": 1, "duplicate": 1, "refused": [], "requests": []}
        assert (await client.get("/healthz")).json()["status"] == "ok"
    await engine.dispose()


async def test_healthz_and_metrics_tell_what_happened(client: httpx.AsyncClient) -> None:
    await post(client, batch(row(1), row(2), row(-5), row(3, loss="abc")))
    await post(client, batch(row(1)))
    await post(client, b"{")
    assert (await client.get("/healthz")).json()["lag_rows"] == 2
    lines = (await client.get("/metrics")).text.splitlines()
    for line in (
        'vitals_items_total{outcome="accepted"} 2.0',
        'vitals_items_total{outcome="duplicate"} 1.0',
        'vitals_items_total{outcome="refused"} 2.0',
        'vitals_refused_total{field="step",kind="row"} 1.0',
        'vitals_refused_total{field="values",kind="row"} 1.0',
        'vitals_refused_requests_total{status="400"} 1.0',
        "vitals_batches_total 2.0",
        "vitals_evaluation_lag_rows 2.0",
        'vitals_runs{state="running"} 1.0',
        "vitals_database_up 1.0",
    ):
        assert line in lines, line


async def test_roles_share_the_work(engine: AsyncEngine) -> None:
    async with client_for(application.build(load(role="web"), engine)) as client:
        assert (await client.post("/api/v1/runs", json=START)).status_code in (404, 405)
        assert (await client.get("/healthz")).status_code == 200


async def test_the_background_work_starts_and_ends_with_the_application(engine: AsyncEngine) -> None:
    api = application.build(load(), engine)
    async with api.router.lifespan_context(api), client_for(api) as client:
        assert (await client.get("/healthz")).status_code == 200


async def test_a_batch_of_which_nothing_is_kept_is_an_error_with_every_refusal(client: httpx.AsyncClient) -> None:
    await post(client, {"attempt": "a", "seq": 1, "rows": []})
    bad = {"attempt": "a", "seq": 1, "rows": [{"step": "x", "at": 1.0, "values": {"m": 1}}, {"step": 1, "at": 1.0, "values": {"m": "high"}}]}
    answer = await post(client, bad)
    assert answer.status_code == 422 and [one["index"] for one in answer.json()["refused"]] == [0, 1]
    assert answer.json()["error"].startswith("Nothing of the batch was stored") and answer.json()["accepted"] == 0
