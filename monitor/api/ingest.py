"""``POST /api/v1/runs``, ``/runs/{run}/batches`` and ``/runs/{run}/finish``: how data comes in.

No model of FastAPI's stands on this path: the bodies are decoded by msgspec, which costs a third, and can be stored in part.
"""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import APIRouter, Request
from sqlalchemy.ext.asyncio import AsyncEngine
from starlette.responses import Response

from monitor.api.parse import read_batch, read_body, read_message
from monitor.api.prometheus import Intake
from monitor.store import ingest
from monitor.store.database import transaction
from monitor.store.rollups import Upkeep
from monitor.wire import Ack, Batch, RunEnd, RunStart, Started

SCHEMAS = (RunStart, Batch, RunEnd, Started, Ack)
"""The messages that the OpenAPI description needs beyond what FastAPI finds."""


def described(taken: type[Any], given: type[Any] | None = None) -> dict[str, Any]:
    """The OpenAPI description of a route that takes and gives messages of ``monitor.wire``."""
    extra: dict[str, Any] = {"requestBody": {"required": True, "content": {"application/json": {"schema": _reference(taken.__name__)}}}}
    answers = {"4XX": _error("What is wrong with the request"), "503": _error("The database cannot be reached; try again after Retry-After seconds")}
    if given is not None:
        answers["200"] = {"description": "Stored", "content": {"application/json": {"schema": _reference(given.__name__)}}}
    return extra | {"responses": answers}


def _reference(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _error(description: str) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": _reference("Error")}}}


def build_router(engine: AsyncEngine, intake: Intake, upkeep: Upkeep, url: str) -> APIRouter:
    """The routes, to be included under ``/api/v1``. ``url`` is the address of the pages."""
    router = APIRouter(tags=["ingest"])

    @router.post("/runs", summary="Open a run or a further attempt of it", openapi_extra=described(RunStart, Started))
    async def start(request: Request) -> Response:
        message = read_message(await read_body(request.stream()), RunStart)
        async with transaction(engine) as connection:
            return reply(await ingest.start_run(connection, message, url=url))

    @router.post("/runs/{run}/batches", summary="Store rows, rollouts and events", openapi_extra=described(Batch, Ack))
    async def batches(run: str, request: Request) -> Response:
        parsed = read_batch(await read_body(request.stream()))
        async with transaction(engine) as connection:
            ack = await ingest.accept(connection, run, parsed.batch)
        ack.refused = [*parsed.refused, *map(parsed.in_message, ack.refused)]
        intake.count(ack)
        upkeep.poke()
        return reply(ack) if ack.accepted or ack.duplicate or not ack.refused else nothing_kept(ack)

    @router.post("/runs/{run}/finish", summary="Say that a run ended", openapi_extra=described(RunEnd))
    async def finish(run: str, request: Request) -> Response:
        message = read_message(await read_body(request.stream()), RunEnd)
        async with transaction(engine) as connection:
            state = await ingest.finish(connection, run, message)
        upkeep.poke()
        return reply({"state": state})

    return router


def nothing_kept(ack: Ack) -> Response:
    """The answer to a batch of which no item could be stored: an error, so that a client that looks at the status alone notices, with every
    refusal."""
    first = ack.refused[0]
    sentence = f"Nothing of the batch was stored; the first problem: {first.kind} {first.index}, {first.field}: {first.reason}."
    body = {"error": sentence, "field": first.field, **msgspec.to_builtins(ack)}
    return Response(msgspec.json.encode(body), 422, media_type="application/json")


def reply(message: Any) -> Response:
    """``message`` as JSON."""
    return Response(msgspec.json.encode(message), media_type="application/json")
