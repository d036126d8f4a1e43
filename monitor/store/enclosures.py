"""What goes with a message: rollouts that show it, the other alarms of its incident, the course of its metric, and its thread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Text, and_, case, func, literal, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from monitor.alerts.book import ALARMS
from monitor.store.tables import alert, incident, metric_set, point, rollout
from monitor.store.tables import thread as thread_table

COURSE = 32
"""Values of a metric's course."""

LOOK_BACK = 512
"""Rows of a run in which they are looked for: a rare metric may have fewer."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A stored rollout that goes with a message."""

    step: int
    pick: str
    turns: list[dict[str, str]]
    rewards: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Other:
    """Another alarm of the same incident; ``since_step`` is where it began."""

    detector: str
    severity: str
    title: str
    since_step: int


async def cascade(conn: AsyncConnection, incident_uid: str, but: str, n: int = 10) -> tuple[Other, ...]:
    """The other alarms of an incident, in the order in which they began."""
    began = func.least(alert.c.finding["since_step"].as_integer(), alert.c.opened_step)
    rows = await conn.execute(
        select(alert.c.detector, alert.c.severity, alert.c.finding["title"].as_string().label("title"), began.label("began"))
        .join(incident, incident.c.id == alert.c.incident_id)
        .where(incident.c.uid == UUID(incident_uid), alert.c.uid != UUID(but), alert.c.severity.in_(ALARMS))
        .order_by(began, alert.c.id)
        .limit(n)
    )
    return tuple(Other(row.detector, row.severity, row.title or row.detector, row.began) for row in rows)


async def samples(conn: AsyncConnection, run_id: int, step: int, n: int = 2) -> tuple[Sample, ...]:
    """The best and the worst rollout of the last sampled step up to ``step``, of the newest attempt that has one."""
    latest = (
        select(rollout.c.segment, rollout.c.step)
        .where(rollout.c.run_id == run_id, rollout.c.step <= step)
        .order_by(rollout.c.step.desc(), rollout.c.segment.desc())
        .limit(1)
        .subquery()
    )
    rows = await conn.execute(
        select(rollout.c.step, rollout.c.pick, rollout.c.turns, rollout.c.rewards)
        .join(latest, and_(rollout.c.segment == latest.c.segment, rollout.c.step == latest.c.step))
        .where(rollout.c.run_id == run_id)
        .order_by(case({"best": 0, "worst": 1}, value=rollout.c.pick, else_=2), rollout.c.ordinal)
        .limit(n)
    )
    return tuple(Sample(row.step, row.pick, row.turns, row.rewards) for row in rows)


async def series(conn: AsyncConnection, run_id: int, seq: int, metric: str) -> tuple[float, ...]:
    """The last values of a metric up to the row ``seq``, in the order in which they arrived."""
    name = literal(metric, Text)
    value = point.c.vals[func.array_position(metric_set.c.names, name)]
    rows = await conn.scalars(
        select(value)
        .join_from(point, metric_set)
        .where(point.c.run_id == run_id, point.c.seq <= seq, point.c.seq > seq - LOOK_BACK, value.is_not(None))
        .order_by(point.c.seq.desc())
        .limit(COURSE)
    )
    return tuple(reversed(rows.all()))


async def thread(conn: AsyncConnection, run_id: int, channel: str, story: UUID) -> dict[str, Any] | None:
    """What a channel gave back for the first message of a story."""
    mine = thread_table.c.run_id == run_id, thread_table.c.channel == channel, thread_table.c.story == story
    found: dict[str, Any] | None = (await conn.execute(select(thread_table.c.reference).where(*mine))).scalar_one_or_none()
    return found


async def keep_thread(conn: AsyncConnection, run_id: int, channel: str, story: UUID, reference: Mapping[str, Any]) -> None:
    """A later reference replaces an earlier one: the channel began anew because the first message is gone."""
    new = insert(thread_table).values(run_id=run_id, channel=channel, story=story, reference=dict(reference))
    again = {"reference": new.excluded.reference, "at": func.now()}
    await conn.execute(new.on_conflict_do_update(index_elements=["run_id", "channel", "story"], set_=again))
