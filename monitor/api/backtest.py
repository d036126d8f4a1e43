"""``POST /api/v1/backtest``: stored runs judged again under other thresholds, told run by run.

The command ``vitals backtest`` does it, in a process of its own: judging is arithmetic that would hold up ingest here, and a process can be ended
when nobody listens any more.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import StreamingResponse
from sqlalchemy.ext.asyncio import AsyncEngine

from monitor.alerts.rules import RulesError, parse
from monitor.api.ingest import described
from monitor.api.parse import read_body, read_message
from monitor.settings import Settings
from monitor.store import history
from monitor.store.checks import BadField, check_time
from monitor.store.database import transaction

MOST_RUNS = 200
LIMIT_S = 300.0
_LONGEST_LINE = 2**24


@dataclass(slots=True)
class Trial:
    """``rules`` is the text of a ``vitals.toml``; only runs of ``project`` and heard of ``since`` (Unix seconds) where they are given."""

    rules: str
    since: float | None = None
    project: str | None = None


SCHEMAS: tuple[type[Any], ...] = (Trial,)


def build_router(settings: Settings, engine: AsyncEngine) -> APIRouter:
    """The route, to be included under ``/api/v1``. One back-test runs at a time."""
    router = APIRouter(tags=["rules"])
    turn = asyncio.Lock()

    @router.post(
        "/backtest",
        summary="Judge the newest stored runs again: JSON lines, first how many runs, then each run, then the sums or an error",
        openapi_extra=described(Trial),
    )
    async def backtest(request: Request) -> StreamingResponse:
        asked = read_message(await read_body(request.stream()), Trial)
        _check(asked.rules)
        since = None if asked.since is None else check_time("since", asked.since)
        if turn.locked():
            raise HTTPException(429, "Another back-test is running; try again when it is done.", {"Retry-After": "10"})
        async with transaction(engine) as conn:
            runs = min(MOST_RUNS, await history.count(conn, since=since, project=asked.project))
        environment = {**os.environ, "VITALS_DATABASE_URL": engine.url.render_as_string(hide_password=False)}
        environment |= {} if settings.rules is None else {"VITALS_RULES": str(settings.rules)}
        told = _told(turn, asked, since, runs, environment)
        return StreamingResponse(told, media_type="application/x-ndjson", headers={"Cache-Control": "no-store"})

    return router


def _check(text: str) -> None:
    try:
        parse(text)
    except RulesError as error:
        raise BadField("rules", "; ".join(str(problem) for problem in error.problems)) from None


async def _told(turn: asyncio.Lock, asked: Trial, since: datetime | None, runs: int, environment: dict[str, str]) -> AsyncIterator[bytes]:
    async with turn:
        yield _line({"runs": runs})
        if not runs:
            return
        with tempfile.TemporaryDirectory(prefix="vitals-") as folder:
            tried = Path(folder) / "tried.toml"
            tried.write_text(asked.rules, "utf-8")
            command = [sys.executable, "-m", "monitor.cli", "backtest", "--json", "--last", str(MOST_RUNS), "--rules", str(tried)]
            command += [] if since is None else ["--since", since.astimezone(UTC).isoformat()]
            command += [] if asked.project is None else ["--project", asked.project]
            gently = ["nice", "-n", "10"] if shutil.which("nice") else []
            process = await asyncio.create_subprocess_exec(*gently, *command, stdout=PIPE, stderr=PIPE, env=environment, limit=_LONGEST_LINE)
            try:
                async for line in _lines(process):
                    yield line
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()


async def _lines(process: Process) -> AsyncIterator[bytes]:
    """What the command prints, and an error where it fails or takes too long."""
    assert process.stdout is not None and process.stderr is not None
    complaint = asyncio.create_task(process.stderr.read())
    end = asyncio.get_running_loop().time() + LIMIT_S
    try:
        while line := await asyncio.wait_for(process.stdout.readline(), end - asyncio.get_running_loop().time()):
            yield line
    except TimeoutError:
        yield _line({"error": f"Stopped after {LIMIT_S:.0f} s; try fewer runs. What is shown is complete for the runs it names."})
        return
    if await process.wait():
        said = (await complaint).decode(errors="replace").strip().splitlines()
        yield _line({"error": f"The back-test failed: {said[-1] if said else 'it does not say why'}"})


def _line(value: Any) -> bytes:
    return msgspec.json.encode(value) + b"\n"
