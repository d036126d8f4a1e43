"""Rollups kept up behind the raw rows: nobody waits for them, and readers look past their end.

A pass takes the rows that a run got since the last one, finds the buckets they touch and computes those anew, level 1 from the raw rows and each
further level from the one below. So a repeated pass, late rows and several collectors all end in the same buckets.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from itertools import pairwise

from sqlalchemy import select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from monitor.metrics import HISTOGRAM_BY_NAME
from monitor.store.database import DatabaseUnreachable, transaction
from monitor.store.tables import rollup_cursor, run

LEVELS = (1, 2, 3)
"""Buckets of 8, 64 and 512 steps."""

_CHUNK = 4000
_FULL_BUCKET = 8
_PAUSE_S = 1.0
_IDLE_S = 15.0
_log = logging.getLogger(__name__)


class Upkeep:
    """The background task of a collector. ``poke`` says that there may be something to do."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._poked = asyncio.Event()

    def poke(self) -> None:
        self._poked.set()

    async def run_forever(self) -> None:
        """Rolls up whatever is due, at most once a second; looks by itself every 15 s, which also catches up after a crash."""
        while True:
            self._poked.clear()
            try:
                await roll_up(self._engine)
            except DatabaseUnreachable as error:
                _log.warning("rollups wait: %s", error)
            except Exception:
                _log.exception("rollups failed and are tried again")
            await asyncio.sleep(_PAUSE_S)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._poked.wait(), _IDLE_S)


async def roll_up(engine: AsyncEngine, *, everything: bool = False) -> None:
    """Rolls up every run that is due: one with a bucket's worth of new rows, or with any if it ended or went quiet or ``everything`` is said."""
    async with transaction(engine) as connection:
        due = list(await connection.scalars(_DUE, {"everything": everything, "full": _FULL_BUCKET}))
    for run_id in due:
        more = True
        while more:
            async with transaction(engine) as connection:
                more = await roll_up_run(connection, run_id)


_DUE = text("""
    SELECT c.run_id
    FROM rollup_cursor c JOIN run r ON r.id = c.run_id
    WHERE r.next_seq - 1 > c.seq
      AND (:everything OR r.next_seq - c.seq > :full OR r.state <> 'running' OR r.last_seen_at < now() - interval '20 seconds')
""")


async def roll_up_run(connection: AsyncConnection, run_id: int) -> bool:
    """One pass over one run; whether there is more to do. A run that another collector is at is left to it."""
    query = select(rollup_cursor.c.seq, (run.c.next_seq - 1).label("last")).join_from(rollup_cursor, run).where(run.c.id == run_id)
    found = (await connection.execute(query.with_for_update(of=rollup_cursor, skip_locked=True))).one_or_none()
    if found is None or found.last <= found.seq:
        return False
    upto = min(found.last, found.seq + _CHUNK)
    span = {"run": run_id, "after": found.seq, "upto": upto}
    await connection.execute(_FROM_RAW, span)
    for below, level in pairwise(LEVELS):
        await connection.execute(_FROM_BELOW, {**span, "below": below, "level": level, "size": float(8**level)})
    for below, level in pairwise((0, *LEVELS)):
        await connection.execute(_HISTS, {**span, "below": below, "level": level, "metrics": list(HISTOGRAM_BY_NAME)})
    await connection.execute(update(rollup_cursor).where(rollup_cursor.c.run_id == run_id).values(seq=upto))
    return bool(upto < found.last)


# PostgreSQL raises where arithmetic overflows or underflows. So sums are of values divided by the bucket's size, which stay in range where the
# mean does; values next to float8's limits are clamped, and so is what a real cannot hold. LATERAL with OFFSET 0 keeps the planner from
# reading the whole run.
_AS_REAL = """
    CAST(CASE WHEN abs({0}) >= 1.2e-38 THEN greatest(-3.4028234e38, least(3.4028234e38, {0})) ELSE 0 * sign({0}) END AS real)
"""
_SUMMABLE = "CASE WHEN abs({0}) < 1e-290 THEN 0 ELSE greatest(-1.7e308, least(1.7e308, {0})) END"
_STORE = """
    ON CONFLICT (run_id, set_id, segment, level, bucket)
    DO UPDATE SET n = excluded.n, bad = excluded.bad, mn = excluded.mn, mx = excluded.mx, mean = excluded.mean
"""
_FROM_RAW = text(f"""
    INSERT INTO rollup (run_id, set_id, segment, level, bucket, n, bad, mn, mx, mean)
    SELECT :run, set_id, segment, 1, bucket, array_agg(n ORDER BY place), array_agg(bad ORDER BY place),
        array_agg({_AS_REAL.format("mn")} ORDER BY place), array_agg({_AS_REAL.format("mx")} ORDER BY place), array_agg(mean ORDER BY place)
    FROM (
        SELECT t.set_id, t.segment, t.bucket, v.place,
            CAST(count(v.x) FILTER (WHERE v.finite) AS integer) AS n,
            CAST(count(v.x) FILTER (WHERE NOT v.finite) AS integer) AS bad,
            min(v.x) FILTER (WHERE v.finite) AS mn,
            max(v.x) FILTER (WHERE v.finite) AS mx,
            sum({_SUMMABLE.format("v.x")} / 8) FILTER (WHERE v.finite) * (8.0 / nullif(count(v.x) FILTER (WHERE v.finite), 0)) AS mean
        FROM (
            SELECT DISTINCT segment, set_id, step >> 3 AS bucket FROM point WHERE run_id = :run AND seq > :after AND seq <= :upto
        ) t
        CROSS JOIN LATERAL (
            SELECT p.vals FROM point p
            WHERE p.run_id = :run AND p.segment = t.segment AND p.set_id = t.set_id AND p.step BETWEEN t.bucket << 3 AND t.bucket << 3 | 7
            OFFSET 0
        ) p
        CROSS JOIN LATERAL (
            SELECT u.x, u.place, u.x NOT IN ('NaN', 'Infinity', '-Infinity') AS finite FROM unnest(p.vals) WITH ORDINALITY AS u (x, place)
        ) v
        GROUP BY t.set_id, t.segment, t.bucket, v.place
    ) buckets
    GROUP BY set_id, segment, bucket
    {_STORE}
""")
_FROM_BELOW = text(f"""
    INSERT INTO rollup (run_id, set_id, segment, level, bucket, n, bad, mn, mx, mean)
    SELECT :run, set_id, segment, :level, bucket, array_agg(n ORDER BY place), array_agg(bad ORDER BY place),
        array_agg(mn ORDER BY place), array_agg(mx ORDER BY place), array_agg(mean ORDER BY place)
    FROM (
        SELECT t.set_id, t.segment, t.bucket, v.place,
            CAST(sum(v.n) AS integer) AS n,
            CAST(sum(v.bad) AS integer) AS bad,
            min(v.mn) AS mn,
            max(v.mx) AS mx,
            sum(v.mean / CAST(:size AS float8) * v.n) * (CAST(:size AS float8) / nullif(sum(v.n), 0)) AS mean
        FROM (
            SELECT DISTINCT segment, set_id, step >> 3 * CAST(:level AS integer) AS bucket
            FROM point WHERE run_id = :run AND seq > :after AND seq <= :upto
        ) t
        CROSS JOIN LATERAL (
            SELECT r.n, r.bad, r.mn, r.mx, r.mean FROM rollup r
            WHERE r.run_id = :run AND r.set_id = t.set_id AND r.segment = t.segment AND r.level = :below
                AND r.bucket BETWEEN t.bucket << 3 AND t.bucket << 3 | 7
            OFFSET 0
        ) r
        CROSS JOIN LATERAL unnest(r.n, r.bad, r.mn, r.mx, r.mean) WITH ORDINALITY AS v (n, bad, mn, mx, mean, place)
        GROUP BY t.set_id, t.segment, t.bucket, v.place
    ) buckets
    GROUP BY set_id, segment, bucket
    {_STORE}
""")
_HISTS = text("""
    INSERT INTO hist (run_id, segment, metric, level, bucket, counts)
    SELECT :run, segment, metric, :level, bucket, array_agg(total ORDER BY place)
    FROM (
        SELECT t.segment, h.metric, t.bucket, v.place, CAST(least(sum(v.count), 9223372036854775807) AS bigint) AS total
        FROM (
            SELECT DISTINCT segment, step >> 3 * CAST(:level AS integer) AS bucket
            FROM point WHERE run_id = :run AND seq > :after AND seq <= :upto
        ) t
        CROSS JOIN unnest(CAST(:metrics AS text[])) AS known (metric)
        CROSS JOIN LATERAL (
            SELECT h.metric, h.counts FROM hist h
            WHERE h.run_id = :run AND h.metric = known.metric AND h.segment = t.segment AND h.level = :below
                AND h.bucket BETWEEN t.bucket << 3 AND t.bucket << 3 | 7
            OFFSET 0
        ) h
        CROSS JOIN LATERAL unnest(h.counts) WITH ORDINALITY AS v (count, place)
        GROUP BY t.segment, h.metric, t.bucket, v.place
    ) buckets
    GROUP BY segment, metric, bucket
    ON CONFLICT (run_id, metric, segment, level, bucket) DO UPDATE SET counts = excluded.counts
""")
