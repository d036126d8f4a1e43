"""``GET /runs/{uid}/export``: every row of a run as CSV or Parquet, streamed in stretches, so that a run of a million steps costs no memory."""

from __future__ import annotations

import asyncio
import csv
import io
import re
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from importlib.util import find_spec
from typing import Any

from fastapi import APIRouter, HTTPException, Query, Response
from fastapi.responses import StreamingResponse
from sqlalchemy.ext.asyncio import AsyncEngine

from monitor import wire
from monitor.api.live import split
from monitor.store import queries, rows, series
from monitor.store.rows import Line

HEAD = ("attempt", "step", "time")
GROUP = 20_000
"""Lines of one row group of a Parquet file."""

CHUNK = 1 << 20
LARGEST_STEP = 2**63 - 1


def build_router(engine: AsyncEngine) -> APIRouter:
    """The route, to be included under ``/api/v1``."""
    router = APIRouter(tags=["read"])

    @router.get("/runs/{uid}/export", summary="Every row of a run as a file: one line per attempt (from 0) and step, one column per metric")
    async def export(
        uid: str,
        format: str = Query("csv", description="csv, or parquet where the collector has pyarrow", pattern="^(csv|parquet)$"),
        metrics: str = Query("", description="metric names, comma-separated; all of them by default", max_length=20000),
        first: int = Query(0, ge=0, le=LARGEST_STEP),
        last: int = Query(LARGEST_STEP, ge=0, le=LARGEST_STEP),
    ) -> Response:
        if format == "parquet" and not has_parquet():
            raise HTTPException(501, "Parquet needs pyarrow, which is not installed beside this collector (pip install pyarrow); CSV holds the same.")
        async with engine.connect() as conn:
            found = await queries.find_run(conn, uid)
            if found is None:
                raise HTTPException(404, f"There is no run {uid!r}.")
            logged = await series.metric_names(conn, found.id, found.seq)
        names = [name for name in split(metrics) if name in logged] if metrics else logged
        stretches = rows.lines(engine, found.id, names, rows=found.seq, first=first, last=last)
        body, kind = (_csv, "text/csv; charset=utf-8") if format == "csv" else (_parquet, "application/vnd.apache.parquet")
        named = f"{re.sub(r'[^A-Za-z0-9._-]+', '_', uid)[:100]}.{format}"
        headers = {"Content-Disposition": f'attachment; filename="{named}"', "Cache-Control": "no-store"}
        return StreamingResponse(body(names, stretches), media_type=kind, headers=headers)

    return router


def has_parquet() -> bool:
    """Whether Parquet can be written here."""
    return find_spec("pyarrow") is not None


async def _csv(names: Sequence[str], stretches: AsyncIterator[list[Line]]) -> AsyncIterator[str]:
    yield _text([(*HEAD, *names)])
    async for stretch in stretches:
        yield await asyncio.to_thread(_text, (_cells(line) for line in stretch))


def _cells(line: Line) -> Iterator[Any]:
    """Absent values are empty; non-finite ones are spelled as everywhere else."""
    yield from (line.attempt, line.step, line.at.isoformat())
    yield from ("" if value is None else wire.spell(value) for value in line.values)


def _text(lines: Any) -> str:
    held = io.StringIO()
    csv.writer(held, lineterminator="\n").writerows(lines)
    return held.getvalue()


async def _parquet(names: Sequence[str], stretches: AsyncIterator[list[Line]]) -> AsyncIterator[bytes]:
    """The file is written before its first byte is sent: its index, which readers begin with, is made at the end."""
    import pyarrow
    from pyarrow import parquet

    schema = pyarrow.schema(
        [
            ("attempt", pyarrow.int32()),
            ("step", pyarrow.int64()),
            ("time", pyarrow.timestamp("us", tz="UTC")),
            *((name, pyarrow.float64()) for name in names),
        ]
    )

    def put(writer: Any, group: list[Line]) -> None:
        columns = [[line.attempt for line in group], [line.step for line in group], [line.at for line in group]]
        columns += [[line.values[place] for line in group] for place in range(len(names))]
        arrays = [pyarrow.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))

    with tempfile.TemporaryFile() as file:
        with parquet.ParquetWriter(file, schema) as writer:
            group: list[Line] = []
            async for stretch in stretches:
                group += stretch
                if len(group) >= GROUP:
                    await asyncio.to_thread(put, writer, group)
                    group = []
            await asyncio.to_thread(put, writer, group)
        file.seek(0)
        while part := await asyncio.to_thread(file.read, CHUNK):
            yield part
