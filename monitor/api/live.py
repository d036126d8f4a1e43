"""``GET /live``: what changed on a page since it last asked, in one answer for the whole page.

A cursor is opaque to the page: per run the last sequence it has seen and the bucket width of its series, as ``412w1,88w8``. When the width
changes, because the run outgrew it, the answer says ``reset`` and brings whole series; otherwise only new points and the buckets to replace.
Times are Unix seconds. JSON cannot carry non-finite numbers: they are null in ``y`` and named in ``bad``.
"""

from __future__ import annotations

import asyncio
import gzip
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from fastapi import APIRouter, HTTPException, Query, Request, Response
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from monitor.api.repeats import Repeats, packs
from monitor.api.shared import Shared
from monitor.store import queries, series

MAX_RUNS = 20
MAX_METRICS = 200
SHARED_S = 1.0
"""How old an answer may be that several pages share; they ask every two seconds."""

FIRST_S = 3.0
"""The same for the first answer to a page, which is much work and soon followed by the next one."""

QUICK = 1
"""A level of compression: the highest one takes 25 times as long for a quarter less."""

FEW = 50
"""Numbers that are sooner rounded one by one."""

LONG = 2**15
"""Bytes that take a millisecond or so to compress."""


class Moment:
    """What the runs of a page were at one moment. Pages that ask within a second are told of the same moment, so that the next time they ask
    for what came after it the question is the same again."""

    def __init__(self, pulses: Sequence[queries.Pulse]) -> None:
        self.pulses = pulses
        self.ends = time.monotonic() + SHARED_S
        self.told: Shared[bytes] = Shared(math.inf)


def build_router(engine: AsyncEngine, repeats: Repeats) -> APIRouter:
    """The route ``/live``, to be included under ``/api/v1``."""
    router = APIRouter(tags=["live"])
    reading = engine.execution_options(isolation_level="AUTOCOMMIT")
    moments: Shared[Moment] = Shared(SHARED_S)
    firsts: Shared[bytes] = Shared(FIRST_S)

    @router.get("/live", summary="New points of a page's charts")
    async def live(
        request: Request,
        run: str = Query(description="run uids, comma-separated", max_length=4000),
        metrics: str = Query("", description="metric names, comma-separated", max_length=20000),
        new: str = Query("", description="names among them that the page has nothing of yet", max_length=20000),
        since: str = Query("", description="the cursor of the last answer", max_length=2000),
    ) -> Response:
        moment = await moments.answer(run, lambda: _moment(reading, split(run)))
        question = run, metrics, new, since
        # Whole series take long; who has just opened a page hears of what came since then when it asks again.
        told = moment.told if since else firsts

        async def plain() -> bytes:
            return await told.answer(question, lambda: _answer(reading, moment.pulses, split(metrics), set(split(new)), since))

        async def packed() -> bytes:
            return await pack(await plain())

        if packs(request.scope):
            answer = stored(await told.answer((*question, "gzip"), packed), {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"})
        else:
            answer = stored(await plain())
        return repeats.keep(request, answer, moment.ends)

    return router


async def _moment(reading: AsyncEngine, uids: Sequence[str]) -> Moment:
    if len(uids) > MAX_RUNS:
        raise too_much()
    async with reading.connect() as conn:
        pulses = await queries.pulses(conn, uids)
    if missing := [uid for uid in uids if uid not in {pulse.uid for pulse in pulses}]:
        raise HTTPException(404, f"There is no run {missing[0]!r}.")
    return Moment(pulses)


def too_much() -> HTTPException:
    return HTTPException(422, f"A page shows at most {MAX_RUNS} runs and {MAX_METRICS} metrics at once; ask for fewer.")


async def _answer(reading: AsyncEngine, pulses: Sequence[queries.Pulse], names: Sequence[str], new: set[str], since: str) -> bytes:
    if len(names) > MAX_METRICS:
        raise too_much()
    places = [_Place(pulse, *known) for pulse, known in zip(pulses, read_cursor(since, len(pulses)), strict=True)]
    async with reading.connect() as conn:
        grown = [place for place in places if not place.reset and place.pulse.seq > place.seen]
        spans = [series.Span(place.pulse.id, place.seen, place.pulse.seq, place.width) for place in grown]
        for place, changed in zip(grown, await series.changes(conn, spans, [name for name in names if name not in new]), strict=True):
            if changed is None:
                place.reset = True
            else:
                place.curves, place.held = changed
        told = []
        for place in places:
            await place.read(conn, names if place.reset else [name for name in names if name in new])
            # Run by run, so that no batch has to wait until ten runs are encoded.
            told.append(msgspec.Raw(msgspec.json.encode(place.told())))
    cursor = ",".join(f"{place.pulse.seq}w{place.width}" for place in places)
    return msgspec.json.encode({"cursor": cursor, "now": time.time(), "runs": told})


class _Place:
    """How far a page is with one run, and what it has to be told."""

    def __init__(self, pulse: queries.Pulse, seen: int, known_width: int) -> None:
        self.pulse, self.seen = pulse, seen
        self.first, self.last = pulse.first_step or 0, pulse.last_step or 0
        self.width = series.width_for(self.first, self.last)
        self.reset = self.width != known_width or not 0 <= seen <= pulse.seq
        self.curves: series.Curves = {}
        self.held: set[str] = set()

    async def read(self, conn: AsyncConnection, names: Sequence[str]) -> None:
        """Adds the whole series of ``names``."""
        if names and self.pulse.seq:
            found = await series.read(conn, self.pulse.id, names, first=self.first, last=self.last, width=self.width, rows=self.pulse.seq)
            self.curves.update(found)

    def told(self) -> dict[str, Any]:
        pulse = self.pulse
        return {
            "run": pulse.uid,
            "state": pulse.state,
            "step": pulse.last_step,
            "seen": pulse.last_seen_at.timestamp(),
            "severity": pulse.severity,
            "judged": pulse.judged_at.timestamp() if pulse.judged_at else None,
            "width": self.width,
            "reset": self.reset,
            "held": sorted(self.held),
            "series": encode(self.curves),
        }


def split(text: str) -> list[str]:
    """The distinct non-empty parts of a comma-separated list, in order."""
    return list(dict.fromkeys(part for part in text.split(",") if part))


def reply(value: Any) -> Response:
    """``value`` as a JSON answer that no cache may keep."""
    return stored(msgspec.json.encode(value))


async def pack(body: bytes) -> bytes:
    """``body`` compressed; what takes long is done beside the event loop, which has batches to take."""
    if len(body) < LONG:
        return gzip.compress(body, QUICK, mtime=0)
    return await asyncio.to_thread(gzip.compress, body, QUICK, mtime=0)


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
    if len(values) < FEW:
        return [None if value is None else float(f"{value:.6g}") for value in values]
    found = np.array(values, dtype=float)
    size = np.abs(found)
    plain = (size > 1e-15) & (size < 1e15)
    # Both numbers of a quotient are exact, so it is the float that a reader of six digits gets.
    places = 5 - np.floor(np.log10(np.where(plain, size, 1.0))).astype(int)
    up, down = 10.0 ** np.maximum(places, 0), 10.0 ** np.maximum(-places, 0)
    told: list[float | None] = (np.round(np.where(plain, found, 0.0) * up / down) / up * down).tolist()
    for place in np.flatnonzero(~plain & (found != 0)).tolist():
        value = values[place]
        told[place] = None if value is None else float(f"{value:.6g}")
    return told
