"""Silence in the database: which runs are overdue, and when we ourselves were blind."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import and_, case, func, or_, select, true, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from monitor.store.database import transaction
from monitor.store.evaluation import Claim, claimed_columns, read_claim
from monitor.store.queries import shown_name
from monitor.store.tables import beat, blind, evaluation, run, segment

COLLECTOR, WORKER = "collector", "worker"
BEAT_S = 5.0
"""How often a collector and a worker write that they live."""

GAP_S = 30.0
"""A collector that was silent for longer was down."""

START_LOOK_S = 120.0
"""When to look at an attempt that has sent no row, and how often."""


@dataclass(frozen=True, slots=True)
class Overdue:
    """A run to look at, locked as a claim. ``ended_at`` is set if it ended; else ``late_s`` is how long its deadline has passed and, if
    its newest attempt has sent no row, ``starting_s`` how long ago that was opened. ``seen_s`` is how long ago its client was heard;
    ``sighted_s`` how long the collector has been up, infinite if always, None if it is down now."""

    claim: Claim
    state: str
    end_reason: str | None
    ended_at: datetime | None
    late_s: float
    seen_s: float
    sighted_s: float | None
    starting_s: float | None = None


async def overdue(conn: AsyncConnection) -> Overdue | None:
    """Locks a run whose deadline has passed, or whose end nobody has judged, and of which nothing is unseen; None if there is none."""
    newest = select(segment).where(segment.c.run_id == run.c.id).order_by(segment.c.segment.desc()).limit(1).lateral("newest")
    first_look = func.greatest(evaluation.c.deadline_at, newest.c.opened_at + timedelta(seconds=START_LOOK_S))
    deadline = case((newest.c.first_step.is_(None), first_look), else_=evaluation.c.deadline_at)
    late = and_(run.c.state == "running", deadline <= func.now())
    ended = and_(run.c.finished_at.is_not(None), run.c.finished_at.is_distinct_from(evaluation.c.ended_at))
    row = (
        await conn.execute(
            select(
                *claimed_columns(),
                run.c.state.label("run_state"),
                run.c.end_reason,
                run.c.finished_at,
                run.c.last_seen_at,
                newest.c.opened_at,
                newest.c.first_step,
                deadline.label("deadline"),
                func.now().label("now"),
            )
            .join_from(evaluation, run)
            .join(newest, true())
            .where(run.c.watched, run.c.next_seq - 1 <= evaluation.c.seq, or_(late, ended))
            .order_by(deadline, run.c.id)
            .limit(1)
            .with_for_update(of=evaluation, skip_locked=True)
        )
    ).one_or_none()
    if row is None:
        return None
    seen = (row.now - row.last_seen_at).total_seconds()
    ended_at = None if row.run_state == "running" else row.finished_at
    if ended_at is not None:
        return Overdue(read_claim(row), row.run_state, row.end_reason, ended_at, 0.0, seen, None)
    late, starting = (row.now - row.deadline).total_seconds(), (row.now - row.opened_at).total_seconds()
    sighted = await _sighted(conn, row.now)
    return Overdue(read_claim(row), row.run_state, row.end_reason, None, late, seen, sighted, starting if row.first_step is None else None)


async def _sighted(conn: AsyncConnection, now: datetime) -> float | None:
    """Seconds since the collector last came back; infinite if it was never away, None if it is away now."""
    last = (await conn.execute(select(beat.c.at).where(beat.c.component == COLLECTOR))).scalar_one_or_none()
    if last is not None and (now - last).total_seconds() > GAP_S:
        return None
    back = (await conn.execute(select(func.max(blind.c.to_at)).where(blind.c.component == COLLECTOR))).scalar_one()
    return float("inf") if back is None else max(0.0, (now - back).total_seconds())


@dataclass(frozen=True, slots=True)
class Announced:
    """A run that has announced silence because of ``why``; it is missed after ``until``, or never if that is None."""

    run: str
    run_name: str
    project: str
    why: str
    until: datetime | None


async def announced(conn: AsyncConnection, run_id: int | None = None) -> list[Announced]:
    """The runs whose silence is expected now; only that of ``run_id`` where one is given."""
    pace = evaluation.c.state["pace"]
    endless = func.jsonb_typeof(pace["until"]) == "null"
    query = (
        select(run.c.uid, shown_name, run.c.project, pace["why"].as_string(), case((~endless, evaluation.c.deadline_at)))
        .join_from(run, evaluation)
        .where(run.c.watched, run.c.state == "running", evaluation.c.deadline_at > func.now())
        .where(or_(endless, pace["until"].as_float() > pace["heard"].as_float()))
        .order_by(run.c.project, run.c.name)
    )
    return [Announced(*row) for row in await conn.execute(query if run_id is None else query.where(run.c.id == run_id))]


@dataclass(frozen=True, slots=True)
class Blind:
    """From when to when a component of ours was down; what a run did not say meanwhile is not held against it."""

    component: str
    from_at: datetime
    to_at: datetime


async def blind_spells(conn: AsyncConnection, since_s: float) -> list[Blind]:
    """The spells that ended in the last ``since_s`` seconds, newest first."""
    ended = blind.c.to_at > func.now() - timedelta(seconds=since_s)
    query = select(blind.c.component, blind.c.from_at, blind.c.to_at).where(ended).order_by(blind.c.to_at.desc()).limit(100)
    return [Blind(*row) for row in await conn.execute(query)]


async def blind_between(conn: AsyncConnection, begin: datetime, end: datetime | None) -> list[Blind]:
    """The spells that touch the time from ``begin`` to ``end`` (None: until now), newest first, at most twenty."""
    query = select(blind.c.component, blind.c.from_at, blind.c.to_at).where(blind.c.to_at > begin).order_by(blind.c.to_at.desc()).limit(20)
    return [Blind(*row) for row in await conn.execute(query if end is None else query.where(blind.c.from_at < end))]


async def postpone(conn: AsyncConnection, claimed: Claim, seconds: float) -> None:
    """Moves a run's deadline to ``seconds`` from now."""
    at = func.now() + timedelta(seconds=seconds)
    await conn.execute(update(evaluation).where(evaluation.c.run_id == claimed.run_id).values(deadline_at=at))


async def settle(conn: AsyncConnection, claimed: Claim, ended_at: datetime | None) -> None:
    """Notes that the last there is to say of a run was said: of its end at ``ended_at``, or of its silence. Nobody looks at it until more comes."""
    await conn.execute(update(evaluation).where(evaluation.c.run_id == claimed.run_id).values(ended_at=ended_at, deadline_at=None))
    unchanged = run.c.next_seq - 1 <= claimed.seq, run.c.finished_at.is_not_distinct_from(ended_at)
    await conn.execute(update(run).where(run.c.id == claimed.run_id, *unchanged).values(watched=False))


async def alive(conn: AsyncConnection, component: str = COLLECTOR) -> None:
    """Writes that a component of ours lives. After a gap it also writes from when to when nobody was looking."""
    now = func.clock_timestamp()
    last = (await conn.execute(select(beat.c.at, now.label("now")).where(beat.c.component == component).with_for_update())).one_or_none()
    if last is not None and (last.now - last.at).total_seconds() > GAP_S:
        await conn.execute(insert(blind).values(component=component, from_at=last.at, to_at=last.now))
    await conn.execute(insert(beat).values(component=component, at=now).on_conflict_do_update(index_elements=["component"], set_={"at": now}))


async def keep_alive(engine: AsyncEngine, component: str = COLLECTOR) -> None:
    """Beats for ever; while the database is away nothing is written, which is the truth. A beat that fails is not the last."""
    while True:
        with contextlib.suppress(Exception):
            async with transaction(engine) as conn:
                await alive(conn, component)
        await asyncio.sleep(BEAT_S)
