"""Ingest against the obvious alternative, in one run on one server: a row per value, written by an upsert.

    python -m bench.ingest [--steps N] [--metrics N] [--batch N] [--folder DIR]

Each way stores the same steps twice over (the second time nothing may change) in a fresh embedded PostgreSQL with durable commits.

- narrow: one row per value, ``INSERT ... SELECT unnest(...) ON CONFLICT DO UPDATE``, on one bare asyncpg connection.
- store: ``monitor.store.ingest.accept``, one wide row per step, with checks, sequence numbers and duplicate detection.
- http: the same through the collector: parsing, routing and answering included, one request at a time.

CPU is this process and the server's together, which a busy machine disturbs less than time. Ratios are to the narrow way; absolute numbers
belong to the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import math
import os
import random
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import httpx
from rich.console import Console
from rich.table import Table
from sqlalchemy.ext.asyncio import AsyncEngine

from monitor.api import app
from monitor.settings import load
from monitor.store import database, embedded, ingest
from monitor.wire import Batch, Row, RunStart, to_json

Batches = list[list[Row]]


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds for the first and the repeated pass, CPU seconds of the first, and bytes on disk afterwards."""

    first: float
    again: float
    cpu: float
    disk: int


def make_batches(steps: int, metrics: int, size: int) -> Batches:
    choose = random.Random(0)
    rows = [Row(step, 1.7e9 + step, {f"metric.{i:03d}": choose.gauss(0, 1) for i in range(metrics)}) for step in range(steps)]
    rows[0].values["metric.000"] = math.nan
    return [rows[i : i + size] for i in range(0, steps, size)]


def cpu_seconds(server: embedded.Server) -> float:
    """What this process and the living processes of the server have used so far (Linux)."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[1]) == server.pid:
                ticks += int(fields[11]) + int(fields[12])
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


async def timed(server: embedded.Server, write: Callable[[list[Row]], Awaitable[None]], batches: Batches) -> tuple[float, float, float]:
    seconds, used = [], [cpu_seconds(server)]
    for _ in range(2):
        begin = time.perf_counter()
        for rows in batches:
            await write(rows)
        seconds.append(time.perf_counter() - begin)
        used.append(cpu_seconds(server))
    return seconds[0], seconds[1], used[1] - used[0]


_NARROW = """
    INSERT INTO narrow (run_id, step, metric, value) SELECT $1, * FROM unnest($2::bigint[], $3::text[], $4::float8[])
    ON CONFLICT (run_id, step, metric) DO UPDATE SET value = excluded.value WHERE narrow.value IS DISTINCT FROM excluded.value
"""


async def measure_narrow(server: embedded.Server, batches: Batches) -> Measured:
    connection = await asyncpg.connect(host=str(server.cluster.data), user="postgres", database=embedded.DATABASE)
    await connection.execute("CREATE TABLE narrow (run_id int, step bigint, metric text, value float8, PRIMARY KEY (run_id, step, metric))")

    async def write(rows: list[Row]) -> None:
        flat = [(row.step, name, value) for row in rows for name, value in row.values.items()]
        steps, names, values = map(list, zip(*flat, strict=True))
        await connection.execute(_NARROW, 1, steps, names, values)

    times = await timed(server, write, batches)
    disk = await connection.fetchval("SELECT pg_total_relation_size('narrow')")
    await connection.close()
    return Measured(*times, disk)


async def start(engine: AsyncEngine, uid: str) -> None:
    async with engine.begin() as connection:
        await ingest.start_run(connection, RunStart(run=uid, attempt="a", project="bench", name="ingest", started_at=1.7e9))


async def disk_of_points(engine: AsyncEngine) -> int:
    async with engine.connect() as connection:
        return int((await connection.exec_driver_sql("SELECT pg_total_relation_size('point')")).scalar_one())


async def measure_store(server: embedded.Server, engine: AsyncEngine, batches: Batches) -> Measured:
    await start(engine, "store")

    async def write(rows: list[Row]) -> None:
        async with engine.begin() as connection:
            ack = await ingest.accept(connection, "store", Batch("a", 1, rows))
        assert ack.accepted + ack.duplicate == len(rows)

    before = await disk_of_points(engine)
    times = await timed(server, write, batches)
    return Measured(*times, await disk_of_points(engine) - before)


async def measure_http(server: embedded.Server, engine: AsyncEngine, batches: Batches) -> Measured:
    await start(engine, "http")
    transport = httpx.ASGITransport(app.build(load(), engine))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        bodies = {id(rows): to_json(Batch("a", 1, rows)) for rows in batches}

        async def write(rows: list[Row]) -> None:
            answer = await client.post("/api/v1/runs/http/batches", content=bodies[id(rows)])
            assert answer.status_code == 200, answer.text

        before = await disk_of_points(engine)
        times = await timed(server, write, batches)
        return Measured(*times, await disk_of_points(engine) - before)


async def measure(server: embedded.Server, batches: Batches) -> dict[str, Measured]:
    await database.migrate(server.url)
    async with database.opened(server.url) as engine:
        await start(engine, "warm")
    engine = database.create_engine(server.url, pool_size=1)
    try:
        return {
            "narrow": await measure_narrow(server, batches),
            "store": await measure_store(server, engine, batches),
            "http": await measure_http(server, engine, batches),
        }
    finally:
        await engine.dispose()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.ingest", description="Ingest against a row per value, in one run.")
    parser.add_argument("--steps", type=int, default=1600, metavar="N", help="steps to store (default 1600)")
    parser.add_argument("--metrics", type=int, default=60, metavar="N", help="metrics per step (default 60)")
    parser.add_argument("--batch", type=int, default=16, metavar="N", help="steps per batch (default 16)")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="an empty folder on the disk to measure (default a temporary one)")
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="vitals-bench-"))
    folder.chmod(0o755)
    server = embedded.start(folder)
    try:
        results = asyncio.run(measure(server, make_batches(given.steps, given.metrics, given.batch)))
    finally:
        server.stop()
        if given.folder is None:
            shutil.rmtree(folder)
    values = given.steps * given.metrics
    base = results["narrow"]
    table = Table(title=f"{given.steps} steps of {given.metrics} metrics, {given.batch} steps a batch; ratios to narrow")
    for heading in ("way", "kvalues/s", "ratio", "repeat kvalues/s", "ratio", "CPU us/value", "ratio", "bytes/value", "ratio"):
        table.add_column(heading, justify="left" if heading == "way" else "right")
    for name, one in results.items():
        table.add_row(
            name,
            f"{values / one.first / 1e3:.0f}",
            f"{base.first / one.first:.1f}",
            f"{values / one.again / 1e3:.0f}",
            f"{base.again / one.again:.1f}",
            f"{one.cpu / values * 1e6:.1f}",
            f"{one.cpu / base.cpu:.2f}",
            f"{one.disk / values:.1f}",
            f"{one.disk / base.disk:.2f}",
        )
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
