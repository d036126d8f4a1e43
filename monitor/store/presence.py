"""Silence in the database: which runs are overdue, and when we ourselves were blind."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import and_, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from monitor.store.database import DatabaseUnreachable, transaction
from monitor.store.evaluation import Claim, claimed_columns, read_claim
from monitor.store.tables import beat, blind, evaluation, run

COLLECTOR = "collector"
BEAT_S = 5.0
"""How often a collector writes that it lives."""

GAP_S = 30.0
"""A collector that was silent for longer was down."""


@dataclass(frozen=True, slots=True)
class Overdue:
    """A run to look at, locked as a claim. ``ended_at`` is set if it ended; else ``late_s`` is how long its deadline has passed. ``seen_s`` is
    how long ago its client was heard; ``sighted_s`` how long the collector has been up, infinite if always, None if it is down now."""

    claim: Claim
    state: str
    end_reason: str | None
    ended_at: datetime | None
    late_s: float
    seen_s: float
    sighted_s: float | None


async def overdue(conn: AsyncConnection) -> Overdue | None:
    """Locks a run whose deadline has passed, or whose end nobody has judged, and of which nothing is unseen; None if there is none."""
    late = and_(run.c.state == "running", evaluation.c.deadline_at <= func.now())
    ended = and_(run.c.finished_at.is_not(None), run.c.finished_at.is_distinct_from(evaluation.c.ended_at))
    row = (
        await conn.execute(
            select(
                *claimed_columns(),
                run.c.state.label("run_state"),
                run.c.end_reason,
                run.c.finished_at,
                run.c.last_seen_at,
                evaluation.c.deadline_at,
                func.now().label("now"),
            )
            .join_from(evaluation, run)
            .where(run.c.watched, run.c.next_seq - 1 <= evaluation.c.seq, or_(late, ended))
            .order_by(evaluation.c.deadline_at, run.c.id)
            .limit(1)
            .with_for_update(of=evaluation, skip_locked=True)
        )
    ).one_or_none()
    if row is None:
        return None
    seen = (row.now - row.last_seen_at).total_seconds()
    ended_at = None if row.run_state == "running" else row.finished_at
    late_s = 0.0 if row.deadline_at is None else (row.now - row.deadline_at).total_seconds()
    return Overdue(read_claim(row), row.run_state, row.end_reason, ended_at, late_s, seen, await _sighted(conn, row.now))


async def _sighted(conn: AsyncConnection, now: datetime) -> float | None:
    """Seconds since the collector last came back; infinite if it was never away, None if it is away now."""
    last = (await conn.execute(select(beat.c.at).where(beat.c.component == COLLECTOR))).scalar_one_or_none()
    if last is not None and (now - last).total_seconds() > GAP_S:
        return None
    back = (await conn.execute(select(func.max(blind.c.to_at)).where(blind.c.component == COLLECTOR))).scalar_one()
    return float("inf") if back is None else max(0.0, (now - back).total_seconds())


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
    """Beats for ever; while the database is away nothing is written, which is the truth."""
    while True:
        with contextlib.suppress(DatabaseUnreachable):
            async with transaction(engine) as conn:
                await alive(conn, component)
        await asyncio.sleep(BEAT_S)
