"""``POST /api/v1/runs/{run}/requests``, ``/label`` and ``/outcome``: what people tell a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from sqlalchemy.ext.asyncio import AsyncEngine
from starlette.responses import Response

from monitor.api.ingest import described, reply
from monitor.api.parse import read_body, read_message
from monitor.store import control
from monitor.store.database import transaction


@dataclass(slots=True)
class RunRequest:
    """``kind`` is one of ``monitor.wire.REQUESTS``, and among those that the run said it accepts."""

    kind: str


@dataclass(slots=True)
class Label:
    """The name that people see instead of the one the run gave itself; null wipes it off."""

    label: str | None


@dataclass(slots=True)
class Outcome:
    """What the run came to: one of ``monitor.wire.OUTCOMES``; null takes it back."""

    outcome: str | None


SCHEMAS: tuple[type[Any], ...] = (RunRequest, Label, Outcome)


def build_router(engine: AsyncEngine) -> APIRouter:
    """The routes, to be included under ``/api/v1``."""
    router = APIRouter(tags=["control"])

    @router.post("/runs/{run}/requests", summary="Ask a run to stop, checkpoint, pause or resume", openapi_extra=described(RunRequest))
    async def ask(run: str, request: Request) -> Response:
        wanted = read_message(await read_body(request.stream()), RunRequest)
        async with transaction(engine) as connection:
            return reply({"requests": await control.make_request(connection, run, wanted.kind)})

    @router.post("/runs/{run}/label", summary="Give a run another name", openapi_extra=described(Label))
    async def label(run: str, request: Request) -> Response:
        wanted = read_message(await read_body(request.stream()), Label)
        async with transaction(engine) as connection:
            await control.set_label(connection, run, wanted.label)
        return reply({"label": wanted.label})

    @router.post("/runs/{run}/outcome", summary="Say what a run came to", openapi_extra=described(Outcome))
    async def outcome(run: str, request: Request) -> Response:
        wanted = read_message(await read_body(request.stream()), Outcome)
        async with transaction(engine) as connection:
            await control.set_outcome(connection, run, wanted.outcome)
        return reply({"outcome": wanted.outcome})

    return router
