"""The history of a project: each run with when it started, how it was judged and where its task reward ended. No series is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, case, func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from monitor.store.queries import SEVERITY_ORDER, shown_name
from monitor.store.tables import evaluation, run
from monitor.wire import spell

_severity = func.coalesce(evaluation.c.severity, "unknown")


@dataclass(frozen=True, slots=True)
class Past:
    """A run in a project's history. ``last`` is the mean of the task reward's last ten finite rows and ``best`` its highest row; None where there
    is none. ``bad`` is its newest value where that is not finite."""

    id: int
    uid: str
    shown: str
    algorithm: str | None
    state: str
    severity: str
    outcome: str | None
    created_at: datetime
    last_step: int | None
    last: float | None = None
    best: float | None = None
    bad: str | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which runs of a project: started at ``since`` or later, of one verdict, with one label (``-``: without). Empty lets everything through."""

    project: str
    since: datetime | None = None
    severity: str = ""
    outcome: str = ""


def _where(wanted: Wanted) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = [run.c.project == wanted.project]
    if wanted.since is not None:
        found.append(run.c.created_at >= wanted.since)
    if wanted.severity:
        found.append(_severity == wanted.severity)
    if wanted.outcome:
        found.append(run.c.outcome.is_(None) if wanted.outcome == "-" else run.c.outcome == wanted.outcome)
    return found


async def history(conn: AsyncConnection, wanted: Wanted, *, limit: int, offset: int = 0) -> list[Past]:
    """The newest runs first."""
    query = (
        select(run.c.id, run.c.uid, shown_name, run.c.algorithm, run.c.state, _severity, run.c.outcome, run.c.created_at, run.c.last_step)
        .outerjoin_from(run, evaluation, evaluation.c.run_id == run.c.id)
        .where(*_where(wanted))
        .order_by(run.c.created_at.desc(), run.c.id.desc())
        .limit(limit)
        .offset(offset)
    )
    found = [Past(*row) for row in await conn.execute(query)]
    ends = await _rewards(conn, [each.id for each in found])
    return [replace(each, **ends[each.id]) for each in found]


async def tally(conn: AsyncConnection, wanted: Wanted) -> dict[str, int]:
    """How many of the runs have each verdict, the most urgent first."""
    urgency = case({name: place for place, name in enumerate(SEVERITY_ORDER)}, value=_severity, else_=len(SEVERITY_ORDER))
    query = (
        select(_severity, func.count())
        .outerjoin_from(run, evaluation, evaluation.c.run_id == run.c.id)
        .where(*_where(wanted))
        .group_by(_severity)
        .order_by(func.min(urgency))
    )
    return {row[0]: row[1] for row in await conn.execute(query)}


async def exists(conn: AsyncConnection, project: str) -> bool:
    """Whether any run belongs to the project."""
    return (await conn.execute(select(run.c.id).where(run.c.project == project).limit(1))).first() is not None


_FINITE = "({0}) NOT IN ('NaN', 'Infinity', '-Infinity')"
_REWARDS = text(
    f"""
    SELECT r.id, ends.last, ends.newest, greatest(rolled.best, fresh.best) AS best
    FROM (SELECT id, coalesce(task_reward, 'reward.task.mean') AS task FROM run WHERE id = ANY(CAST(:ids AS integer[]))) r
    LEFT JOIN rollup_cursor c ON c.run_id = r.id
    CROSS JOIN LATERAL (
        SELECT avg(greatest(-1e150, least(1e150, v))) FILTER (WHERE {_FINITE.format("v")}) AS last, (array_agg(v ORDER BY seq DESC))[1] AS newest
        FROM (
            SELECT p.seq, p.vals[array_position(m.names, r.task)] AS v
            FROM (SELECT seq, set_id, vals FROM point WHERE run_id = r.id ORDER BY seq DESC LIMIT 60) p JOIN metric_set m ON m.id = p.set_id
            WHERE p.vals[array_position(m.names, r.task)] IS NOT NULL
            ORDER BY p.seq DESC LIMIT 10
        ) tail
    ) ends
    CROSS JOIN LATERAL (
        WITH RECURSIVE sets AS (
            (SELECT set_id FROM rollup WHERE run_id = r.id ORDER BY set_id LIMIT 1)
            UNION ALL
            SELECT (SELECT set_id FROM rollup WHERE run_id = r.id AND set_id > sets.set_id ORDER BY set_id LIMIT 1)
            FROM sets WHERE sets.set_id IS NOT NULL
        )
        SELECT max(u.mx[array_position(m.names, r.task)]) AS best
        FROM sets JOIN metric_set m ON m.id = sets.set_id JOIN segment s ON s.run_id = r.id
        JOIN rollup u ON u.run_id = r.id AND u.set_id = m.id AND u.segment = s.segment AND u.level = 3
        WHERE u.n[array_position(m.names, r.task)] > 0
    ) rolled
    CROSS JOIN LATERAL (
        SELECT max(p.vals[array_position(m.names, r.task)]) FILTER (WHERE {_FINITE.format("p.vals[array_position(m.names, r.task)]")}) AS best
        FROM (SELECT set_id, vals FROM point WHERE run_id = r.id AND seq > coalesce(c.seq, 0) ORDER BY seq LIMIT 4096) p
        JOIN metric_set m ON m.id = p.set_id
    ) fresh
    """
)
"""The last rows through the index of sequences; the best from the coarsest rollups, of which there is one per 512 steps, and the rows that those
do not hold yet."""


async def _rewards(conn: AsyncConnection, ids: Sequence[int]) -> dict[int, dict[str, Any]]:
    return {row.id: {"last": row.last, "best": row.best, "bad": _bad(row.newest)} for row in await conn.execute(_REWARDS, {"ids": list(ids)})}


def _bad(newest: float | None) -> str | None:
    spelled = None if newest is None else spell(newest)
    return spelled if isinstance(spelled, str) else None
