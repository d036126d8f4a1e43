"""Recorded runs as judgement once saw them, for judging them again under other rules. Nothing is locked and nothing is written."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from monitor.store.evaluation import Claim, Item, unjudged, unseen
from monitor.store.tables import run

BATCH = 2000


@dataclass(frozen=True, slots=True)
class Recorded:
    """A run from its first row on, and what a person said it came to."""

    claim: Claim
    outcome: str | None


async def recorded(
    engine: AsyncEngine, *, since: datetime | None = None, project: str | None = None, uid: str | None = None, last: int | None = None
) -> list[Recorded]:
    """The runs last heard of at ``since`` or later, of ``project`` or called ``uid`` if given, oldest first; of these the ``last`` ones."""
    query = select(run).where(*_fitting(since, project)).order_by(run.c.created_at.desc(), run.c.id.desc()).limit(last)
    if uid is not None:
        query = query.where(run.c.uid == uid)
    async with engine.connect() as conn:
        found = (await conn.execute(query)).all()[::-1]
    return [Recorded(unjudged(row), row.outcome) for row in found]


async def count(conn: AsyncConnection, *, since: datetime | None = None, project: str | None = None) -> int:
    """How many runs :func:`recorded` finds."""
    return (await conn.execute(select(func.count()).select_from(run).where(*_fitting(since, project)))).scalar_one()


def _fitting(since: datetime | None, project: str | None) -> list[ColumnElement[bool]]:
    return [*([] if since is None else [run.c.last_seen_at >= since]), *([] if project is None else [run.c.project == project])]


async def items(engine: AsyncEngine, claim: Claim) -> AsyncIterator[list[Item]]:
    """Everything that ``claim``'s run sent, in order, in stretches of at most :data:`BATCH`; no connection is held between them."""
    while claim.seq < claim.last:
        async with engine.connect() as conn:
            found = await unseen(conn, claim, BATCH)
        if found:
            yield found
        claim = replace(claim, seq=min(claim.last, claim.seq + BATCH))
