"""How much there is and how far behind anyone is: the numbers for ``/healthz`` and ``/metrics``."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from monitor.store.tables import delivery, delivery_attempt, evaluation, rollup_cursor, run


@dataclass(frozen=True, slots=True)
class Census:
    """``unjudged`` and ``unrolled`` count stored rows and events past a cursor; ``attempts`` maps (channel, outcome) to how often."""

    runs: dict[str, int]
    unjudged: int
    unrolled: int
    judged: int
    judging_seconds: float
    waiting: int
    attempts: dict[tuple[str, str], int]


async def take(connection: AsyncConnection) -> Census:
    """Counts everything; a few milliseconds for a thousand runs."""
    runs = await connection.execute(select(run.c.state, func.count()).group_by(run.c.state))
    judged = select(func.coalesce(func.sum(evaluation.c.rows), 0), func.coalesce(func.sum(evaluation.c.seconds), 0))
    rows, seconds = (await connection.execute(judged)).one()
    unrolled = select(func.coalesce(func.sum(run.c.next_seq - 1 - rollup_cursor.c.seq), 0)).join_from(run, rollup_cursor)
    waiting = select(func.count()).select_from(delivery).where(delivery.c.state == "pending")
    outcomes = (
        select(delivery.c.channel, delivery_attempt.c.outcome, func.count())
        .join_from(delivery_attempt, delivery)
        .group_by(delivery.c.channel, delivery_attempt.c.outcome)
    )
    return Census(
        runs=dict(map(tuple, runs)),
        unjudged=await lag(connection),
        unrolled=int((await connection.execute(unrolled)).scalar_one()),
        judged=int(rows),
        judging_seconds=float(seconds),
        waiting=int((await connection.execute(waiting)).scalar_one()),
        attempts={(channel, outcome): count for channel, outcome, count in await connection.execute(outcomes)},
    )


async def lag(connection: AsyncConnection) -> int:
    """Stored rows and events that no worker has judged yet."""
    behind = select(func.coalesce(func.sum(run.c.next_seq - 1 - evaluation.c.seq), 0)).join_from(run, evaluation)
    return int((await connection.execute(behind)).scalar_one())
