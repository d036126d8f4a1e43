"""Recorded runs as judgement once saw them, for judging them again under other rules. Nothing is locked and nothing is written."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from monitor.store.evaluation import Claim, Item, unseen
from monitor.store.tables import run

BATCH = 2000


@dataclass(frozen=True, slots=True)
class Recorded:
    """A run from its first row on, and what a person said it came to."""

    claim: Claim
    outcome: str | None


async def recorded(engine: AsyncEngine, *, since: datetime | None = None, project: str | None = None, uid: str | None = None) -> list[Recorded]:
    """The runs last heard of at ``since`` or later, of ``project`` or called ``uid`` if given, oldest first."""
    query = select(run).order_by(run.c.created_at, run.c.id)
    if since is not None:
        query = query.where(run.c.last_seen_at >= since)
    if project is not None:
        query = query.where(run.c.project == project)
    if uid is not None:
        query = query.where(run.c.uid == uid)
    async with engine.connect() as conn:
        found = (await conn.execute(query)).all()
    return [
        Recorded(
            Claim(
                run_id=row.id,
                uid=row.uid,
                project=row.project,
                name=row.name,
                algorithm=row.algorithm,
                signal=row.signal,
                task=row.task_reward,
                aux=tuple(row.aux_rewards),
                config=row.config,
                tags=tuple(row.tags),
                seq=0,
                last=row.next_seq - 1,
                rows=0,
                state={},
                failures=0,
            ),
            row.outcome,
        )
        for row in found
    ]


async def items(engine: AsyncEngine, claim: Claim) -> AsyncIterator[list[Item]]:
    """Everything that ``claim``'s run sent, in order, in stretches of at most :data:`BATCH`; no connection is held between them."""
    while claim.seq < claim.last:
        async with engine.connect() as conn:
            found = await unseen(conn, claim, BATCH)
        if found:
            yield found
        claim = dataclasses.replace(claim, seq=min(claim.last, claim.seq + BATCH))
