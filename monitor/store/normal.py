"""What was normal in runs of the same kind that a person called healthy, sampled: where the curves of a run may be expected to lie."""

from __future__ import annotations

from collections.abc import AsyncIterator

from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from monitor.alerts.bands import METRICS, WARM_UP, Band, Bands, Group, model_of
from monitor.detect.contract import Row
from monitor.store.queries import RunView, segments
from monitor.store.series import metric_sets
from monitor.store.tables import run as run_table

MOST_RUNS = 12
LOOKED_AT = 200
"""Newest healthy runs among which those of the same model are sought."""

SAMPLES = 400
"""Rows taken of a run at even distances: each costs one step in an index, however long the run is."""

_SAMPLE = text(
    """
    SELECT near.step, near.vals FROM generate_series(CAST(:first AS bigint), CAST(:last AS bigint), CAST(:stride AS bigint)) AS grid(step)
    CROSS JOIN LATERAL (
        SELECT step, vals FROM point
        WHERE run_id = :run AND segment = :segment AND set_id = :set AND step >= grid.step AND step < grid.step + :stride
        ORDER BY step LIMIT 1
    ) near
    """
)


async def bands(conn: AsyncConnection, like: RunView) -> list[Band]:
    """The bands of the newest healthy runs of the project, algorithm and model of ``like``, itself left out."""
    group = Group(like.project, like.algorithm or "", model_of(like.config))
    query = (
        select(run_table)
        .where(run_table.c.project == like.project, run_table.c.algorithm.is_not_distinct_from(like.algorithm))
        .where(run_table.c.outcome == "healthy", run_table.c.id != like.id)
        .order_by(run_table.c.id.desc())
        .limit(LOOKED_AT)
    )
    found = [row for row in (await conn.execute(query)).all() if model_of(row.config) == group.model]
    gathered = Bands()
    for row in found[:MOST_RUNS]:
        gathered.add(group, row.uid, [each async for each in _sample(conn, row.id, row.next_seq - 1, row.last_step or 0)])
    return gathered.found()


async def _sample(conn: AsyncConnection, run_id: int, rows: int, last: int) -> AsyncIterator[Row]:
    """Rows of the newest attempt and of what earlier ones did before it, numbered by their steps."""
    attempts = await segments(conn, run_id)
    begin = min((attempt.first_step or 0 for attempt in attempts), default=0)
    sets = {set_id: names for set_id, names in (await metric_sets(conn, run_id, rows)).items() if any(name in names for name in METRICS)}
    stride = max(1, -(-(last - begin + 1) // SAMPLES))
    for place, attempt in enumerate(attempts):
        until = min((later.first_step or 0 for later in attempts[place + 1 :]), default=last + 1) - 1
        for set_id, names in sets.items():
            wanted = {"run": run_id, "segment": attempt.segment, "set": set_id, "first": max(begin + WARM_UP, attempt.first_step or 0), "last": until}
            for step, vals in await conn.execute(_SAMPLE, wanted | {"stride": stride}):
                values = {name: value for name, value in zip(names, vals, strict=True) if value is not None and name in METRICS}
                yield Row(step - begin, step, values)
