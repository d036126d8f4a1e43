"""``GET /live``: what changed on a page since it last asked, in one answer for the whole page.

A cursor is opaque to the page: per run the last sequence it has seen and the bucket width of its series, as ``412w1,88w8``. When the width
changes, because the run outgrew it, the answer says ``reset`` and brings whole series; otherwise only new points and the buckets to replace.
Times are Unix seconds. JSON cannot carry non-finite numbers: they are null in ``y`` and named in ``bad``.
"""

from __future__ import annotations

import gzip
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from fastapi import APIRouter, HTTPException, Query, Request, Response
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from monitor.api.shared import Shared
from monitor.store import queries, series

MAX_RUNS = 20
MAX_METRICS = 200
SHARED_S = 1.0
"""How old an answer may be that several pages share; they ask every two seconds."""


def build_router(engine: AsyncEngine) -> APIRouter:
    """The route ``/live``, to be included under ``/api/v1``."""
    router = APIRouter(tags=["live"])
    shared = Shared(SHARED_S)

    @router.get("/live", summary="New points of a page's charts")
    async def live(
        request: Request,
        run: str = Query(description="run uids, comma-separated", max_length=4000),
        metrics: str = Query("", description="metric names, comma-separated", max_length=20000),
        new: str = Query("", description="names among them that the page has nothing of yet", max_length=20000),
        since: str = Query("", description="the cursor of the last answer", max_length=2000),
    ) -> Response:
        uids, names = split(run), split(metrics)
        if len(uids) > MAX_RUNS or len(names) > MAX_METRICS:
            raise HTTPException(422, f"A page shows at most {MAX_RUNS} runs and {MAX_METRICS} metrics at once; ask for fewer.")
        question = run, metrics, new, since

        async def plain() -> bytes:
            return await shared.answer(question, lambda: _answer(engine, uids, names, set(split(new)), since))

        async def packed() -> bytes:
            return gzip.compress(await plain(), mtime=0)

        if "gzip" not in request.headers.get("accept-encoding", ""):
            return stored(await plain())
        return stored(await shared.answer((*question, "gzip"), packed), {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"})

    return router


async def _answer(engine: AsyncEngine, uids: Sequence[str], names: Sequence[str], new: set[str], since: str) -> bytes:
    async with engine.connect() as conn:
        pulses = await queries.pulses(conn, uids)
        if missing := [uid for uid in uids if uid not in {pulse.uid for pulse in pulses}]:
            raise HTTPException(404, f"There is no run {missing[0]!r}.")
        places = read_cursor(since, len(pulses))
        runs = [await _run(conn, pulse, place, names, new) for pulse, place in zip(pulses, places, strict=True)]
    cursor = ",".join(f"{pulse.seq}w{answer['width']}" for pulse, answer in zip(pulses, runs, strict=True))
    return msgspec.json.encode({"cursor": cursor, "now": time.time(), "runs": runs})


def split(text: str) -> list[str]:
    """The distinct non-empty parts of a comma-separated list, in order."""
    return list(dict.fromkeys(part for part in text.split(",") if part))


def reply(value: Any) -> Response:
    """``value`` as a JSON answer that no cache may keep."""
    return stored(msgspec.json.encode(value))


def stored(body: bytes, headers: Mapping[str, str] | None = None) -> Response:
    """JSON that no cache may keep."""
    return Response(body, media_type="application/json", headers={"Cache-Control": "no-store", **(headers or {})})


def read_cursor(text: str, runs: int) -> list[tuple[int, int]]:
    """Per run the sequence and the width that the page has; (0, 0) where it has nothing, which a cursor of another page also means."""
    parts = text.split(",")
    if len(parts) != runs:
        return [(0, 0)] * runs
    try:
        return [(int(seq), int(width)) for seq, width in (part.split("w") for part in parts)]
    except ValueError:
        return [(0, 0)] * runs


async def _run(conn: AsyncConnection, pulse: queries.Pulse, place: tuple[int, int], names: Sequence[str], new: set[str]) -> dict[str, Any]:
    seen, known_width = place
    first, last = pulse.first_step or 0, pulse.last_step or 0
    width = series.width_for(first, last)
    found: series.Curves = {}
    held: set[str] = set()
    reset = width != known_width or seen > pulse.seq
    if not reset and pulse.seq > seen:
        changed = await series.changes(conn, pulse.id, [n for n in names if n not in new], since=seen, upto=pulse.seq, width=width)
        if changed is None:
            reset = True
        else:
            found, held = changed
    whole = list(names) if reset else [name for name in names if name in new]
    if whole and pulse.seq:
        found.update(await series.read(conn, pulse.id, whole, first=first, last=last, width=width, rows=pulse.seq))
    return {
        "run": pulse.uid,
        "state": pulse.state,
        "step": pulse.last_step,
        "seen": pulse.last_seen_at.timestamp(),
        "severity": pulse.severity,
        "judged": pulse.judged_at.timestamp() if pulse.judged_at else None,
        "width": width,
        "reset": reset,
        "held": sorted(held),
        "series": encode(found),
    }


def encode(curves: series.Curves) -> dict[str, dict[str, dict[str, Any]]]:
    """Curves as JSON values with six significant digits: metric -> attempt -> x, y and, where they are not empty, low, high, bad."""
    return {name: {str(number): _curve(curve) for number, curve in attempts.items()} for name, attempts in curves.items()}


def _curve(curve: series.Curve) -> dict[str, Any]:
    told: dict[str, Any] = {"x": curve.x, "y": _short(curve.y)}
    if curve.low:
        told |= {"low": _short(curve.low), "high": _short(curve.high)}
    if curve.bad:
        told["bad"] = curve.bad
    return told


def _short(values: Sequence[float | None]) -> list[float | None]:
    return [None if value is None else float(f"{value:.6g}") for value in values]
