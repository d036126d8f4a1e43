"""The read API under ``/api/v1``: runs, their series, histograms, rollouts, events and alerts, as pages and scripts ask for them."""

from __future__ import annotations

import dataclasses
import time
from datetime import datetime
from typing import Any

from fastapi import APIRouter, HTTPException, Query, Request, Response
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from monitor import wire
from monitor.api.live import MAX_METRICS, SHARED_S, encode, reply, split
from monitor.api.repeats import Repeats
from monitor.metrics import HISTOGRAM_BY_NAME
from monitor.store import heat, incidents, normal, presence, queries, receipts, series

OVERLAP_S = 2.0
"""Changes are told again for so long, because a transaction that began earlier may commit later."""

DAY_S = 86_400.0

SPARKS = ("reward.task.mean", "entropy.mean", "kl_ref.k3")


def build_router(engine: AsyncEngine, repeats: Repeats) -> APIRouter:
    """Every read route, to be included under ``/api/v1``."""
    router = APIRouter(tags=["read"])

    @router.get("/runs", summary="Runs, the most urgent first")
    async def runs(
        q: str = Query("", description="words that name, project, algorithm, uid or tags hold", max_length=200),
        project: str = "",
        tag: str = "",
        state: str = Query("", description="running, finished, crashed, killed, stopped, or ended for any but running"),
        severity: str = "",
        since: float | None = Query(None, description="only runs that changed since the cursor of an earlier answer"),
        limit: int = Query(500, ge=1, le=2000),
    ) -> Response:
        wanted = queries.FleetFilter(q, project, tag, state, severity, since, limit)
        async with engine.connect() as conn:
            found = await queries.fleet(conn, wanted)
            total = None if since is not None else await queries.count_runs(conn, wanted)
            alerts = await queries.count_open_alerts(conn)
        now = time.time()
        return reply({"now": now, "cursor": now - OVERLAP_S, "total": total, "alerts": alerts, "runs": [summary(run) for run in found]})

    @router.get(
        "/pulse", summary="Incidents and alerts that are open, receivers that take nothing, and a stamp that changes with all that and with notes"
    )
    async def pulse(request: Request) -> Response:
        async with engine.connect() as conn:
            ill = [jsonable(each) for each in await receipts.channels(conn) if each["state"] != "ok"]
            told = {"incidents": await incidents.count_unresolved(conn), "alerts": await queries.count_open_alerts(conn)}
            stamp = await queries.alert_stamp(conn)
        answer = reply({"now": time.time(), **told, "channels": ill, "stamp": stamp})
        return repeats.keep(request, answer, time.monotonic() + SHARED_S)

    @router.get("/presence", summary="Silence that runs have announced, and when in the last day collector or worker were down")
    async def present() -> Response:
        async with engine.connect() as conn:
            told = {"announced": [jsonable(each) for each in await presence.announced(conn)]}
            told |= {"blind": [jsonable(each) for each in await presence.blind_spells(conn, DAY_S)]}
        return reply({"now": time.time(), **told})

    @router.get("/sparks", summary="Small series of the fleet page: task reward, entropy, KL to the reference")
    async def sparks(runs: str = Query(max_length=8000), points: int = Query(48, ge=8, le=200)) -> Response:
        async with engine.connect() as conn:
            found = await queries.find_runs(conn, split(runs)[:60])
            return reply({run.uid: await _sparks(conn, run, points) for run in found})

    @router.get("/runs/{uid}", summary="One run with its configuration")
    async def run(uid: str) -> Response:
        async with engine.connect() as conn:
            found = await _find(conn, uid)
            names = await series.metric_names(conn, found.id, found.seq)
            attempts = await queries.segments(conn, found.id)
        told = summary(found) | {"config": found.config, "environment": found.environment, "dropped": found.dropped}
        told |= {"verdict": found.verdict, "metrics": names, "segments": [jsonable(each) for each in attempts]}
        return reply(told)

    @router.get("/runs/{uid}/series", summary="Series between two steps, at the resolution of a screen")
    async def read_series(
        uid: str,
        metrics: str = Query(max_length=20000),
        first: int | None = None,
        last: int | None = None,
        points: int | None = Query(None, description="how many at most; by default what a chart shows", ge=10, le=20000),
    ) -> Response:
        names = split(metrics)[:MAX_METRICS]
        async with engine.connect() as conn:
            found = await _find(conn, uid)
            begin = await series.first_step(conn, found.id) if first is None else first
            end = (found.last_step or 0) if last is None else last
            width = series.width_for(begin, end, points)
            curves = await series.read(conn, found.id, names, first=begin, last=end, width=width, rows=found.seq)
        return reply({"run": uid, "width": width, "series": encode(curves)})

    @router.get("/runs/{uid}/clock", summary="When steps were taken, as pairs of step and Unix seconds")
    async def clock(uid: str) -> Response:
        async with engine.connect() as conn:
            found = await _find(conn, uid)
            begin = await series.first_step(conn, found.id)
            return reply(await series.clock(conn, found.id, first=begin, last=found.last_step or 0))

    @router.get("/runs/{uid}/normal", summary="Where 98 of 100 rows of healthy runs of the same project, algorithm and model lay")
    async def like_healthy(uid: str) -> Response:
        async with engine.connect() as conn:
            found = await normal.bands(conn, await _find(conn, uid))
        return reply({band.metric: {"low": band.low, "median": band.median, "high": band.high, "runs": band.runs} for band in found})

    @router.get("/runs/{uid}/hist", summary="A histogram over steps")
    async def heat_map(
        uid: str, metric: str, first: int | None = None, last: int | None = None, columns: int = Query(160, ge=10, le=500)
    ) -> Response:
        if metric not in HISTOGRAM_BY_NAME:
            raise HTTPException(422, f"metric must be one of {', '.join(HISTOGRAM_BY_NAME)}.")
        async with engine.connect() as conn:
            found = await _find(conn, uid)
            begin = await series.first_step(conn, found.id) if first is None else first
            end = (found.last_step or 0) if last is None else last
            told = await heat.heat_map(conn, found.id, metric, first=begin, last=end, columns=columns)
        edges = list(HISTOGRAM_BY_NAME[metric].edges)
        return reply({"x": told.x, "width": told.width, "first_bin": told.first_bin, "edges": edges, "counts": told.counts})

    @router.get("/runs/{uid}/rollouts", summary="The decoded samples of one step, or the steps that have some")
    async def rollouts(uid: str, step: int | None = None) -> Response:
        async with engine.connect() as conn:
            found = await _find(conn, uid)
            if step is None:
                return reply({"steps": await queries.rollout_steps(conn, found.id)})
            return reply({"step": step, "rollouts": [jsonable(each) for each in await queries.rollouts(conn, found.id, step)]})

    @router.get("/runs/{uid}/events", summary="What happened to a run")
    async def events(uid: str, after: int = 0) -> Response:
        async with engine.connect() as conn:
            found = await _find(conn, uid)
            return reply([jsonable(each) for each in await queries.events(conn, found.id, after=after)])

    @router.get("/alerts", summary="Alerts with their history and who was told; open ones first")
    async def alerts(run: str | None = None, state: str = "", severity: str = "", q: str = Query("", max_length=200)) -> Response:
        async with engine.connect() as conn:
            found = await queries.alerts(conn, run_uid=run, state=state, severity=severity, words=q)
            return reply([jsonable(each) for each in found])

    return router


async def _find(conn: AsyncConnection, uid: str) -> queries.RunView:
    found = await queries.find_run(conn, uid)
    if found is None:
        raise HTTPException(404, f"There is no run {uid!r}.")
    return found


def summary(run: queries.RunView) -> dict[str, Any]:
    """A run as the fleet shows it; times are Unix seconds."""
    verdict = run.verdict
    return {
        "run": run.uid,
        "project": run.project,
        "name": run.shown,
        "algorithm": run.algorithm,
        "state": run.state,
        "tags": list(run.tags),
        "outcome": run.outcome,
        "step": run.last_step,
        "speed": run.speed,
        "created": run.created_at.timestamp(),
        "seen": run.last_seen_at.timestamp(),
        "severity": run.severity,
        "sentence": verdict.get("sentence", ""),
        "since": verdict.get("since_step"),
        "critical": run.critical,
        "warning": run.warning,
    }


async def _sparks(conn: AsyncConnection, run: queries.RunView, points: int) -> dict[str, Any]:
    names = (run.task_reward or SPARKS[0], *SPARKS[1:])
    begin = await series.first_step(conn, run.id)
    end = run.last_step or 0
    width = series.width_for(begin, end, points)
    found = encode(await series.read(conn, run.id, names, first=begin, last=end, width=width, rows=run.seq))
    return {key: found.get(name, {}) for key, name in zip(("reward", "entropy", "kl"), names, strict=True)}


def jsonable(tree: Any) -> Any:
    """Frozen values as JSON values: times as Unix seconds, non-finite numbers spelled."""
    if isinstance(tree, datetime):
        return tree.timestamp()
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        return {f.name: jsonable(getattr(tree, f.name)) for f in dataclasses.fields(tree)}
    if isinstance(tree, dict):
        return {key: jsonable(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [jsonable(value) for value in tree]
    return wire.spell(tree) if isinstance(tree, float) else tree
