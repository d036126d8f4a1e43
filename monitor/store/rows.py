"""Every row of a run as it was sent, in stretches: what exports are made of."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select, tuple_
from sqlalchemy.ext.asyncio import AsyncEngine

from monitor.store.series import metric_sets
from monitor.store.tables import point

STRETCH = 2000


@dataclass(frozen=True, slots=True)
class Line:
    """What one attempt (counted from 0) logged at one step, in the order of the names asked for; None is absent, NaN and infinity are values."""

    attempt: int
    step: int
    at: datetime
    values: list[float | None]


async def lines(engine: AsyncEngine, run_id: int, names: Sequence[str], *, rows: int, first: int, last: int) -> AsyncIterator[list[Line]]:
    """Steps ``first..last`` of a run of about ``rows`` rows: attempt by attempt, steps rising, rows of one step as one line.

    No connection is held between two stretches.
    """
    async with engine.connect() as conn:
        sets = await metric_sets(conn, run_id, rows)
    columns = {name: column for column, name in enumerate(names)}
    places = {set_id: [(columns[name], place) for place, name in enumerate(known) if name in columns] for set_id, known in sets.items()}
    key = tuple_(point.c.segment, point.c.step)
    after = (-1, -1)
    while True:
        query = (
            select(point.c.segment, point.c.step, point.c.set_id, point.c.at, point.c.vals)
            .where(point.c.run_id == run_id, point.c.step.between(first, last), key > after)
            .order_by(point.c.segment, point.c.step, point.c.set_id)
            .limit(STRETCH)
        )
        async with engine.connect() as conn:
            found = (await conn.execute(query)).all()
        full = len(found) == STRETCH
        # The last step of a full stretch may go on in the next one.
        if full:
            found = [row for row in found if row[:2] != found[-1][:2]]
        told: dict[tuple[int, int], Line] = {}
        for segment, step, set_id, at, vals in found:
            line = told.setdefault((segment, step), Line(segment, step, at, [None] * len(names)))
            for column, place in places.get(set_id, ()):
                if vals[place] is not None:
                    line.values[column] = vals[place]
        if told:
            yield list(told.values())
            after = next(reversed(told))
        if not full:
            return
