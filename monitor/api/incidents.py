"""Incidents under ``/api/v1``: what is wrong, what was told to whom, and what people do about it."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from fastapi import APIRouter, HTTPException, Query, Request
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from starlette.responses import Response

from monitor.api.ingest import described
from monitor.api.live import reply
from monitor.api.parse import read_body, read_message
from monitor.api.reads import jsonable
from monitor.store import incidents, receipts
from monitor.store.checks import check_time
from monitor.store.database import transaction
from monitor.store.incidents import Incident, UnknownIncident


@dataclass(slots=True)
class Act:
    """Who acknowledges, closes or comments on an incident, and what they say."""

    author: str = ""
    text: str = ""


@dataclass(slots=True)
class Mark:
    """``verdict``: ``true`` or ``false`` alarm; null takes it back."""

    verdict: str | None
    author: str = ""
    text: str = ""


@dataclass(slots=True)
class Hush:
    """A silence: ``matcher`` maps project, run, detector, organ or tag to a pattern with shell wildcards; ``until`` is in Unix seconds."""

    matcher: dict[str, str]
    until: float
    reason: str
    author: str = ""


SCHEMAS: tuple[type[Any], ...] = (Act, Mark, Hush)

Action = Callable[[AsyncConnection, UUID, str, str], Awaitable[Incident]]


def build_router(engine: AsyncEngine) -> APIRouter:
    """The routes, to be included under ``/api/v1``."""
    router = APIRouter(tags=["incidents"])

    @router.get("/incidents", summary="Incidents with their alerts, open ones first")
    async def listed(
        state: str = Query("", description="open, acknowledged, resolved, or unresolved for any but resolved"),
        severity: str = Query("", description="warning or critical"),
        run: str | None = None,
        project: str = "",
        detector: str = Query("", description="of one of its alerts"),
        q: str = Query("", description="words that run, project, detector or title hold", max_length=200),
        brief: bool = Query(
            False, description="of each alert the title alone, of the leading one evidence and advice; and who was told, or why nobody"
        ),
        limit: int = Query(100, ge=1, le=1000),
        offset: int = Query(0, ge=0, le=10**6),
    ) -> Response:
        async with transaction(engine) as conn:
            found = await incidents.incidents(
                conn, state=state, severity=severity, run_uid=run, project=project, detector=detector, words=q, limit=limit, offset=offset
            )
            if not brief:
                return reply([jsonable(each) for each in found])
            uids = [each.uid for each in found]
            told, muted = await receipts.told(conn, uids), await receipts.muted(conn, uids)
        return reply([{**_brief(each), "told": told.get(each.uid, {}), "muted": muted.get(each.uid)} for each in found])

    @router.get("/incidents/{uid}", summary="One incident with notes and the log of its deliveries")
    async def one(uid: UUID) -> Response:
        async with transaction(engine) as conn:
            found = await _known(incidents.find(conn, uid))
            notes = [jsonable(each) for each in await incidents.notes(conn, uid)]
            sent = [jsonable(each) for each in await receipts.attempts(conn, incident_uid=uid)]
        return reply({**jsonable(found), "notes": notes, "deliveries": sent})

    def action(name: str, summary: str, act: Action) -> None:
        @router.post(f"/incidents/{{uid}}/{name}", summary=summary, openapi_extra=described(Act), name=name)
        async def acted(uid: UUID, request: Request) -> Response:
            said = read_message(await read_body(request.stream()) or b"{}", Act)
            async with transaction(engine) as conn:
                return reply(jsonable(await _known(act(conn, uid, said.author, said.text))))

    action("acknowledge", "Say that somebody has taken it on", incidents.acknowledge)
    action("release", "Take an acknowledgement back", incidents.release)
    action("resolve", "Close it by hand; it opens again only after its condition had gone, or when it gets worse", incidents.resolve)
    action("comment", "Write a note", incidents.comment)

    @router.post("/incidents/{uid}/mark", summary="Say whether the alarm was true or false", openapi_extra=described(Mark))
    async def marked(uid: UUID, request: Request) -> Response:
        said = read_message(await read_body(request.stream()), Mark)
        async with transaction(engine) as conn:
            return reply(jsonable(await _known(incidents.mark(conn, uid, said.author, said.verdict, said.text))))

    @router.get("/transitions", summary="Every change of every alert after a cursor, each exactly once")
    async def transitions(after: str = Query("", max_length=60), limit: int = Query(200, ge=1, le=1000)) -> Response:
        async with transaction(engine) as conn:
            found = await incidents.feed(conn, after, limit)
        return reply({"cursor": found[-1].cursor if found else after, "transitions": [jsonable(each) for each in found]})

    @router.get("/deliveries", summary="The log of deliveries, attempt by attempt, newest first")
    async def deliveries(
        channel: str = "",
        outcome: str = Query("", description="sending, delivered, failed or refused"),
        limit: int = Query(200, ge=1, le=1000),
    ) -> Response:
        async with transaction(engine) as conn:
            return reply([jsonable(each) for each in await receipts.attempts(conn, channel_name=channel, outcome=outcome, limit=limit)])

    _add_silences(router, engine)
    return router


def _brief(found: Incident) -> dict[str, Any]:
    leading = incidents.leading(found.alerts)
    finding = leading.finding if leading is not None else {}
    kept = ("id", "detector", "organ", "severity", "state", "began")
    members = [{**{name: getattr(each, name) for name in kept}, "title": each.finding.get("title") or each.detector} for each in found.alerts]
    began = min((each.began for each in found.alerts), default=found.opened_step)
    said = {"evidence": finding.get("evidence") or "", "advice": finding.get("advice") or ""}
    return {**jsonable(dataclasses.replace(found, alerts=())), "alerts": members, "began": began, **said}


def _add_silences(router: APIRouter, engine: AsyncEngine) -> None:
    @router.get("/silences", summary="The silences that have not run out")
    async def silences() -> Response:
        async with transaction(engine) as conn:
            return reply([jsonable(each) for each in await incidents.silences(conn)])

    @router.post("/silences", summary="Tell nobody of what matches until a time", openapi_extra=described(Hush))
    async def silence(request: Request) -> Response:
        said = read_message(await read_body(request.stream()), Hush)
        async with transaction(engine) as conn:
            key = await incidents.add_silence(conn, said.matcher, check_time("until", said.until), said.author, said.reason)
        return reply({"id": key})

    @router.delete("/silences/{key}", summary="End a silence now")
    async def unsilence(key: int) -> Response:
        async with transaction(engine) as conn:
            await _known(incidents.end_silence(conn, key))
        return reply({"id": key})


async def _known(work: Awaitable[Any]) -> Any:
    try:
        return await work
    except UnknownIncident as error:
        raise HTTPException(404, str(error)) from None
