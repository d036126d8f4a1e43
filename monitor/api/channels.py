"""Channels under ``/api/v1``: who can be told, whether they are well, and a test of one."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, HTTPException
from sqlalchemy.ext.asyncio import AsyncEngine
from starlette.responses import Response

from monitor import settings as rooms
from monitor.api.live import reply
from monitor.api.reads import jsonable
from monitor.deliver.channel import Channel, TransportError
from monitor.deliver.trial import send_trial
from monitor.settings import Settings, SettingsError
from monitor.store import deliveries, receipts
from monitor.store.database import transaction


def build_router(engine: AsyncEngine, settings: Settings) -> APIRouter:
    """The routes, to be included under ``/api/v1``."""
    router = APIRouter(tags=["channels"])

    def known() -> dict[str, Channel]:
        """The channels as they are set up now: a file of rules or of a secret may have changed since the start."""
        try:
            return {each.name: each for each in rooms.channels(settings, rooms.rules(settings))}
        except SettingsError as error:
            raise HTTPException(409, str(error)) from None

    @router.get("/channels", summary="The receivers: what this collector knows of, and the health of every one that was ever used")
    async def channels() -> Response:
        async with transaction(engine) as conn:
            health = {each["name"]: each for each in await receipts.channels(conn)}
        try:
            found = known()
        except HTTPException:
            found = {}
        fresh = {"state": "ok", "failures": 0, "waiting": 0, "last_ok_at": None, "last_error": None, "last_error_at": None, "rest_until": None}
        names = sorted({*health, *found})
        return reply([jsonable(_described(name, found.get(name), health.get(name, fresh))) for name in names])

    @router.post("/channels/{name}/test", summary="Send a message that is clearly a test through a channel")
    async def test(name: str) -> Response:
        channel = known().get(name)
        if channel is None:
            raise HTTPException(404, f"There is no channel {name[:80]} here.")
        try:
            receipt = await send_trial(channel, settings.url)
        except TransportError as error:
            return reply({"channel": name, "delivered": False, "status": error.status, "latency_ms": None, "error": str(error)})
        async with transaction(engine) as conn:
            await deliveries.enable(conn, [name])
        said = {"channel": name, "delivered": True, "status": receipt.status, "latency_ms": receipt.latency_ms, "error": receipt.note}
        return reply(said)

    @router.delete("/channels/{name}", summary="Forget how a receiver was that is not used any more; its next attempt brings it back")
    async def forget(name: str) -> Response:
        async with transaction(engine) as conn:
            if not await deliveries.forget(conn, name):
                raise HTTPException(404, f"No channel {name[:80]} was ever used.")
        return reply({"channel": name})

    return router


def _described(name: str, channel: Channel | None, health: dict[str, Any]) -> dict[str, Any]:
    """``set_up``: this collector knows the channel; ``about`` where it leads, without any secret."""
    return {**health, "name": name, "set_up": channel is not None, "about": channel.about if channel is not None else ""}
