"""A file holds every row that was sent: attempt by attempt, absent values absent, non-finite ones as they are."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from runs import Feed
from sqlalchemy.ext.asyncio import AsyncEngine

from monitor.api import app as application
from monitor.api import export
from monitor.settings import load
from monitor.store import rows


def noise(step: int) -> dict[str, float]:
    row = {"opt.loss": 0.1 * step, "entropy.mean": math.nan if step == 3 else 1e-17 * step}
    return row | ({"eval.task.mean": float(step)} if step % 2 else {})


NOISE = [noise(step) for step in range(10)]


@pytest.fixture
async def client(engine: AsyncEngine) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(application.build(load(), engine))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1/api/v1") as client:
        yield client


@pytest.fixture
async def told(engine: AsyncEngine) -> list[tuple[int, int, dict[str, Any]]]:
    """A run of two attempts, whose first one went further; what it sent."""
    feed = await Feed(engine, "r 1 ü").start("one")
    await feed.rows(NOISE)
    await feed.start("two", 6)
    await feed.rows([{"opt.loss": math.inf}] * 3)
    return [(0, step, row) for step, row in enumerate(NOISE)] + [(1, step, {"opt.loss": math.inf}) for step in (6, 7, 8)]


@pytest.fixture(params=[2, 3, 2000])
def stretch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(rows, "STRETCH", request.param)
    monkeypatch.setattr(export, "GROUP", 4)
    return int(request.param)


async def test_csv(client: httpx.AsyncClient, told: list[Any], stretch: int) -> None:
    answer = await client.get("/runs/r%201%20%C3%BC/export")
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/csv")
    assert answer.headers["content-disposition"] == 'attachment; filename="r_1_.csv"'
    read = list(csv.DictReader(io.StringIO(answer.text)))
    assert [(int(line["attempt"]), int(line["step"])) for line in read] == [(attempt, step) for attempt, step, _ in told]
    for line, (_, _, row) in zip(read, told, strict=True):
        assert {name: float(line[name]) for name in ("opt.loss", "entropy.mean", "eval.task.mean") if line[name]} == pytest.approx(row, nan_ok=True)
    assert read[3]["entropy.mean"] == "NaN" and read[-1]["opt.loss"] == "Infinity" and read[-1]["entropy.mean"] == ""
    assert read[0]["time"].startswith("2026-02-02T")


async def test_parquet(client: httpx.AsyncClient, told: list[Any], stretch: int) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    answer = await client.get("/runs/r%201%20%C3%BC/export", params={"format": "parquet"})
    assert answer.status_code == 200
    table = parquet.read_table(io.BytesIO(answer.content))
    assert table.num_rows == len(told) and parquet.ParquetFile(io.BytesIO(answer.content)).num_row_groups > 1
    for line, (attempt, step, row) in zip(table.to_pylist(), told, strict=True):
        assert (line["attempt"], line["step"]) == (attempt, step)
        names = ("opt.loss", "entropy.mean", "eval.task.mean")
        assert {name: line[name] for name in names if line[name] is not None} == pytest.approx(row, nan_ok=True)


async def test_some_metrics_of_some_steps(client: httpx.AsyncClient, told: list[Any]) -> None:
    answer = await client.get("/runs/r%201%20%C3%BC/export", params={"metrics": "opt.loss,unknown", "first": 7, "last": 8})
    lines = [line.split(",") for line in answer.text.splitlines()]
    assert lines[0] == ["attempt", "step", "time", "opt.loss"]
    assert [line[:2] for line in lines[1:]] == [["0", "7"], ["0", "8"], ["1", "7"], ["1", "8"]]


async def test_what_cannot_be_answered_is_said(client: httpx.AsyncClient, told: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await client.get("/runs/nope/export")).status_code == 404
    assert (await client.get("/runs/r%201%20%C3%BC/export", params={"format": "xls"})).status_code == 422
    monkeypatch.setattr(export, "has_parquet", lambda: False)
    answer = await client.get("/runs/r%201%20%C3%BC/export", params={"format": "parquet"})
    assert answer.status_code == 501 and "pip install pyarrow" in answer.json()["error"]
