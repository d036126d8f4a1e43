"""The collector as one FastAPI application. The pages are attached to it by whoever runs it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from sqlalchemy.ext.asyncio import AsyncEngine
from starlette.responses import JSONResponse, Response

from monitor import wire
from monitor.api import backtest, channels, control, errors, export, incidents, ingest, live, prometheus, reads
from monitor.api.auth import Guard
from monitor.api.repeats import Repeated, Repeats
from monitor.settings import Settings
from monitor.store import census, presence
from monitor.store.database import DatabaseUnreachable, head, transaction
from monitor.store.rollups import Upkeep


def build(settings: Settings, engine: AsyncEngine, reading: AsyncEngine | None = None) -> FastAPI:
    """The application for ``settings.role``. It keeps the rollups up while it runs and disposes of its engines when it ends.

    ``reading`` has connections of its own, so that batches need not wait for those of pages; by default there is but one engine.
    """
    reading = engine if reading is None else reading
    intake, upkeep, repeats = prometheus.Intake(), Upkeep(engine), Repeats()
    collects = settings.role in ("all", "collector")

    @contextlib.asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(upkeep.run_forever()), asyncio.create_task(presence.keep_alive(engine))] if collects else []
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await engine.dispose()
            await reading.dispose()

    app = FastAPI(title="rlvitals", version=_version(), lifespan=life, docs_url=None, redoc_url=None, openapi_url=f"{wire.API}/openapi.json")
    errors.install(app, intake)
    app.add_middleware(Repeated, repeats=repeats)
    app.add_middleware(Guard, settings=settings)
    _add_own_state(app, engine, intake)
    if collects:
        app.include_router(ingest.build_router(engine, intake, upkeep, settings.url), prefix=wire.API)
    app.include_router(channels.build_router(engine, settings), prefix=wire.API)
    app.include_router(control.build_router(engine), prefix=wire.API)
    app.include_router(incidents.build_router(engine), prefix=wire.API)
    app.include_router(backtest.build_router(settings, engine), prefix=wire.API)
    app.include_router(live.build_router(reading, repeats), prefix=wire.API)
    app.include_router(reads.build_router(reading, repeats), prefix=wire.API)
    app.include_router(export.build_router(reading), prefix=wire.API)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


def _add_own_state(app: FastAPI, engine: AsyncEngine, intake: prometheus.Intake) -> None:
    @app.get("/healthz", tags=["state"], summary="Whether the collector and its database are well")
    async def healthz() -> JSONResponse:
        about: dict[str, Any] = {"version": _version(), "schema": head()}
        try:
            async with transaction(engine) as connection:
                lag = await census.lag(connection)
        except DatabaseUnreachable:
            return JSONResponse({"status": "no database", **about}, 503, {"Retry-After": str(errors.RETRY_AFTER_S)})
        return JSONResponse({"status": "ok", **about, "lag_rows": lag})

    @app.get("/metrics", tags=["state"], summary="For Prometheus")
    async def metrics() -> Response:
        return await prometheus.exposition(intake, engine)


def _openapi(app: FastAPI) -> dict[str, Any]:
    """FastAPI's description with the messages that msgspec reads."""
    if app.openapi_schema is None:
        described = get_openapi(title=app.title, version=app.version, routes=app.routes)
        _, messages = msgspec.json.schema_components(
            (*ingest.SCHEMAS, *control.SCHEMAS, *incidents.SCHEMAS, *backtest.SCHEMAS), ref_template="#/components/schemas/{name}"
        )
        error = {"type": "object", "properties": {"error": {"type": "string"}, "field": {"type": ["string", "null"]}}, "required": ["error", "field"]}
        described.setdefault("components", {}).setdefault("schemas", {}).update(messages | {"Error": error})
        app.openapi_schema = described
    return app.openapi_schema


def _version() -> str:
    try:
        return version("rlvitals")
    except PackageNotFoundError:
        return "0"
