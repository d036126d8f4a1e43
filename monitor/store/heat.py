"""Histograms over steps: at most so many columns, from the coarsest level that divides them and, past its end, from the steps themselves."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import ColumnElement, and_, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from monitor.metrics import HISTOGRAM_BY_NAME
from monitor.store.series import LEVEL_BASE, level_for, width_for
from monitor.store.tables import hist, segment


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Histogram counts over steps: ``counts[i]`` are the bins ``first_bin`` onwards of the bucket that starts at step ``x[i]``."""

    x: list[int]
    width: int
    first_bin: int
    counts: list[list[int]]


async def heat_map(conn: AsyncConnection, run_id: int, metric: str, *, first: int, last: int, columns: int = 160) -> HeatMap:
    """The histogram ``metric`` over steps in at most ``columns`` buckets, of each step its newest attempt; empty outer bins are cut off."""
    width = width_for(first, last, columns)
    level = level_for(width)
    bins = HISTOGRAM_BY_NAME[metric].bins
    sums: dict[int, list[int]] = {}
    ends: dict[int, int] = {}
    here = and_(hist.c.run_id == run_id, hist.c.metric == metric)
    if level > 0:
        query = select(hist.c.segment, func.max(hist.c.bucket)).where(here, hist.c.level == level).group_by(hist.c.segment)
        ends = {number: int(bucket) * LEVEL_BASE**level for number, bucket in await conn.execute(query)}
    begins = {
        number: step or 0 for number, step in await conn.execute(select(segment.c.segment, segment.c.first_step).where(segment.c.run_id == run_id))
    }

    async def add(at_level: int, where: ColumnElement[bool]) -> None:
        grain = LEVEL_BASE**at_level
        query = select(hist.c.segment, hist.c.bucket, hist.c.counts).where(here, hist.c.level == at_level, where)
        query = query.where(hist.c.bucket.between(first // width * width // grain, last // grain))
        for number, bucket, counts in await conn.execute(query):
            step = int(bucket) * grain
            if any(later > number and begin <= step for later, begin in begins.items()):
                continue
            x = step // width * width
            total = sums.setdefault(x, [0] * bins)
            for place, count in enumerate(counts[:bins]):
                total[place] += count

    if ends:
        await add(level, or_(*(and_(hist.c.segment == number, hist.c.bucket < end // LEVEL_BASE**level) for number, end in ends.items())))
    tails = [and_(hist.c.segment == number, hist.c.bucket >= end) for number, end in ends.items()]
    await add(0, or_(hist.c.segment.not_in(ends), *tails) if ends else hist.c.segment >= 0)
    xs = sorted(sums)
    used = [place for place in range(bins) if any(sums[x][place] for x in xs)]
    low, high = (used[0], used[-1] + 1) if used else (0, 0)
    return HeatMap(xs, width, low, [sums[x][low:high] for x in xs])


async def histograms(conn: AsyncConnection, run_id: int) -> list[str]:
    """Which of the catalogue's histograms the run has reported."""
    checks = [select(hist.c.metric).where(hist.c.run_id == run_id, hist.c.metric == name).limit(1) for name in HISTOGRAM_BY_NAME]
    return [name for check in checks for name in (await conn.execute(check)).scalars()]
