"""Recorded runs as judgement once saw them, for judging them again under other rules. Nothing is locked and nothing is written."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import ColumnElement, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from monitor.store.evaluation import Claim, Item, unjudged, unseen
from monitor.store.tables import run

BATCH = 2000


@dataclass(frozen=True, slots=True)
class Recorded:
    """A run from its first row on, and what a person said it came to."""

    claim: Claim
    outcome: str | None


async def recorded(engine: AsyncEngine, *, since: datetime | None = None, project: str | None = None, last: int | None = None) -> list[Recorded]:
    """The runs last heard of at ``since`` or later, of ``project`` if given, oldest first; of these the ``last`` ones."""
    return await _found(engine, _fitting(since, project), last)


async def meant(engine: AsyncEngine, word: str) -> list[Recorded]:
    """The runs that a person calls ``word``, oldest first: the one of this identifier, else those of this name or of ``project/name``, else
    those whose identifiers begin with it."""
    names = or_(run.c.name == word, run.c.label == word, run.c.project + "/" + run.c.name == word)
    for fits in (run.c.uid == word, names, run.c.uid.startswith(word, autoescape=True)):
        if found := await _found(engine, [fits]):
            return found
    return []


async def _found(engine: AsyncEngine, fits: list[ColumnElement[bool]], last: int | None = None) -> list[Recorded]:
    query = select(run).where(*fits).order_by(run.c.created_at.desc(), run.c.id.desc()).limit(last)
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
