"""Reading series at the resolution of a screen: raw steps while they fit, else buckets with minimum, mean and maximum.

A bucket holds ``width`` steps, a power of two, and is named by its first step. Buckets come from the coarsest rollup level that divides them
and, past the end of the rollups, from the raw rows, so that a reader never waits for the rollups to catch up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, and_, case, func, or_, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from monitor.metrics import HISTOGRAM_BY_NAME
from monitor.store.arithmetic import mean
from monitor.store.rollups import LEVELS
from monitor.store.tables import hist, metric_set, point, rollup, segment

POINTS = 1000
"""A chart is at most a few hundred pixels wide; more buckets than this cannot be told apart."""

FEW_ROWS = 5000
MAX_CHANGED_ROWS = 2000
LEVEL_BASE = 8


@dataclass(slots=True)
class Curve:
    """One metric of one attempt over rising steps ``x``.

    ``y`` is the value, or the mean of the finite values of a bucket; None where nothing finite was measured. ``low`` and ``high`` bound a bucket
    and are empty where each bucket is one step. ``bad`` names the steps with non-finite values: ``NaN``, ``Infinity``, ``-Infinity`` or, for a
    bucket, how many there were.
    """

    x: list[int]
    y: list[float | None]
    low: list[float | None]
    high: list[float | None]
    bad: list[tuple[int, str]]


Curves = dict[str, dict[int, Curve]]
"""Metric name -> attempt -> curve."""


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Histogram counts over steps: ``counts[i]`` are the bins ``first_bin`` onwards of the bucket that starts at step ``x[i]``."""

    x: list[int]
    width: int
    first_bin: int
    counts: list[list[int]]


def width_for(first: int, last: int, points: int = POINTS) -> int:
    """The smallest power of two that cuts ``first..last`` into at most ``points`` buckets."""
    width = 1
    while (last - first) // width >= points:
        width *= 2
    return width


def level_for(width: int) -> int:
    """The coarsest rollup level there is whose buckets of ``8**level`` steps divide ``width``; 0 is the raw rows."""
    level = 0
    while level < LEVELS[-1] and LEVEL_BASE ** (level + 1) <= width:
        level += 1
    return level


async def first_step(conn: AsyncConnection, run_id: int) -> int:
    """The first step that the run reported, 0 before any."""
    return (await conn.execute(select(func.min(segment.c.first_step)).where(segment.c.run_id == run_id))).scalar() or 0


_SETS_OF_LONG_RUN = text(
    """
    WITH RECURSIVE rolled AS (
        (SELECT set_id FROM rollup WHERE run_id = :run ORDER BY set_id LIMIT 1)
        UNION ALL
        SELECT (SELECT set_id FROM rollup WHERE run_id = :run AND set_id > rolled.set_id ORDER BY set_id LIMIT 1)
        FROM rolled WHERE rolled.set_id IS NOT NULL
    )
    SELECT id, names FROM metric_set WHERE id IN (
        SELECT set_id FROM rolled
        UNION SELECT set_id FROM (SELECT set_id FROM point WHERE run_id = :run ORDER BY seq LIMIT 500) first_rows
        UNION SELECT set_id FROM (SELECT set_id FROM point WHERE run_id = :run ORDER BY seq DESC LIMIT 500) last_rows
    ) ORDER BY id
    """
)
"""A distinct over a million rows would read them all; the rollups' key finds each set in one step."""


async def metric_sets(conn: AsyncConnection, run_id: int, rows: int) -> dict[int, list[str]]:
    """The metric sets of a run that has accepted about ``rows`` rows: id -> names in order."""
    if rows > FEW_ROWS:
        found = await conn.execute(_SETS_OF_LONG_RUN, {"run": run_id})
    else:
        used = select(point.c.set_id).where(point.c.run_id == run_id).distinct()
        found = await conn.execute(select(metric_set.c.id, metric_set.c.names).where(metric_set.c.id.in_(used)).order_by(metric_set.c.id))
    return {set_id: list(names) for set_id, names in found}


async def metric_names(conn: AsyncConnection, run_id: int, rows: int) -> list[str]:
    """Every metric the run has reported, in the order of its rows."""
    return list(dict.fromkeys(name for names in (await metric_sets(conn, run_id, rows)).values() for name in names))


async def read(conn: AsyncConnection, run_id: int, names: Sequence[str], *, first: int, last: int, width: int, rows: int) -> Curves:
    """The series ``names`` over steps ``first..last``. ``rows`` is about how many rows the run has. Unknown names are left out."""
    parts: list[Curves] = []
    for set_id, known in (await metric_sets(conn, run_id, rows)).items():
        wanted = _places(known, names)
        if not wanted:
            continue
        if width == 1:
            parts.append(await _raw(conn, run_id, set_id, wanted, point.c.step.between(first, last)))
            continue
        starts: dict[int, int] = {}
        if level_for(width) > 0:
            rolled, starts = await _rolled(conn, run_id, set_id, wanted, first, last, width)
            parts.append(rolled)
        where: ColumnElement[bool] = point.c.step.between(first // width * width, last)
        if starts:
            tails = [and_(point.c.segment == number, point.c.step >= start) for number, start in starts.items()]
            where = and_(where, or_(point.c.segment.not_in(starts), *tails))
        parts.append(await _bucketed(conn, run_id, set_id, wanted, where, width))
    return _merged(parts)


async def changes(conn: AsyncConnection, run_id: int, names: Sequence[str], *, since: int, upto: int, width: int) -> tuple[Curves, set[str]] | None:
    """What the rows with a sequence in ``(since, upto]`` changed: whole points or whole buckets to replace, and every name they hold.

    None when so much changed that reading everything again is cheaper.
    """
    fresh = select(point.c.set_id, point.c.segment, (point.c.step // width * width).label("x")).where(
        point.c.run_id == run_id, point.c.seq > since, point.c.seq <= upto
    )
    touched: dict[int, set[tuple[int, int]]] = {}
    found = (await conn.execute(fresh.limit(MAX_CHANGED_ROWS + 1))).all()
    if len(found) > MAX_CHANGED_ROWS:
        return None
    for set_id, number, x in found:
        touched.setdefault(set_id, set()).add((number, int(x)))
    if not touched:
        return {}, set()
    known = {
        set_id: list(named) for set_id, named in await conn.execute(select(metric_set.c.id, metric_set.c.names).where(metric_set.c.id.in_(touched)))
    }
    parts: list[Curves] = []
    for set_id, buckets in touched.items():
        wanted = _places(known[set_id], names)
        if not wanted:
            continue
        if width == 1:
            parts.append(await _raw(conn, run_id, set_id, wanted, and_(point.c.seq > since, point.c.seq <= upto)))
        elif len(buckets) > 64:
            return None
        else:
            inside = or_(*(and_(point.c.segment == number, point.c.step.between(x, x + width - 1)) for number, x in sorted(buckets)))
            parts.append(await _bucketed(conn, run_id, set_id, wanted, inside, width))
    return _merged(parts), {name for named in known.values() for name in named}


def _places(known: Sequence[str], names: Sequence[str]) -> list[tuple[str, int]]:
    """Wanted names that a set holds, with their one-based place in its arrays."""
    places = {name: place for place, name in enumerate(known, start=1)}
    return [(name, places[name]) for name in names if name in places]


async def _raw(conn: AsyncConnection, run_id: int, set_id: int, wanted: list[tuple[str, int]], where: ColumnElement[bool]) -> Curves:
    query = (
        select(point.c.segment, point.c.step, *(point.c.vals[place].label(f"v{place}") for _, place in wanted))
        .where(point.c.run_id == run_id, point.c.set_id == set_id, where)
        .order_by(point.c.segment, point.c.step)
    )
    curves: Curves = {name: {} for name, _ in wanted}
    for number, rows in _by_segment(await conn.execute(query)):
        _, steps, *columns = zip(*rows, strict=True)
        for (name, _), column in zip(wanted, columns, strict=True):
            curve = _plain(steps, column)
            if curve.x:
                curves[name][number] = curve
    return curves


def _plain(steps: Sequence[int], values: Sequence[float | None]) -> Curve:
    x: list[int] = []
    y: list[float | None] = []
    bad: list[tuple[int, str]] = []
    for step, value in zip(steps, values, strict=True):
        if value is None:
            continue
        x.append(step)
        if math.isfinite(value):
            y.append(value)
        else:
            y.append(None)
            bad.append((step, "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"))
    return Curve(x, y, [], [], bad)


async def _bucketed(conn: AsyncConnection, run_id: int, set_id: int, wanted: list[tuple[str, int]], where: ColumnElement[bool], width: int) -> Curves:
    start = (point.c.step // width * width).label("x")
    columns: list[ColumnElement[Any]] = []
    for _, place in wanted:
        value = point.c.vals[place]
        finite = and_(value > -math.inf, value < math.inf)
        columns += [
            func.count(value).filter(finite),
            func.count(value).filter(~finite),
            func.min(value).filter(finite),
            func.max(value).filter(finite),
            mean(value, case((finite, 1)), float(width)),
        ]
    query = (
        select(point.c.segment, start, *columns)
        .where(point.c.run_id == run_id, point.c.set_id == set_id, where)
        .group_by(point.c.segment, start)
        .order_by(point.c.segment, start)
    )
    return _unpack(await conn.execute(query), wanted)


async def _rolled(
    conn: AsyncConnection, run_id: int, set_id: int, wanted: list[tuple[str, int]], first: int, last: int, width: int
) -> tuple[Curves, dict[int, int]]:
    """Buckets from the rollups, and for each attempt the step from which the raw rows must be read because its rollups end there."""
    level = level_for(width)
    grain = LEVEL_BASE**level
    here = and_(rollup.c.run_id == run_id, rollup.c.set_id == set_id, rollup.c.level == level)
    ends = select(rollup.c.segment, func.max(rollup.c.bucket)).where(here).group_by(rollup.c.segment)
    starts = {number: int(bucket) * grain // width * width for number, bucket in await conn.execute(ends)}
    if not starts:
        return {}, {}
    start = (rollup.c.bucket * grain // width * width).label("x")
    columns: list[ColumnElement[Any]] = []
    for _, place in wanted:
        count = rollup.c.n[place]
        columns += [
            func.sum(count),
            func.sum(rollup.c.bad[place]),
            func.min(rollup.c.mn[place]).filter(count > 0),
            func.max(rollup.c.mx[place]).filter(count > 0),
            mean(rollup.c.mean[place], count, float(width)),
        ]
    query = (
        select(rollup.c.segment, start, *columns)
        .where(here, rollup.c.bucket.between(first // width * width // grain, last // grain))
        .where(or_(*(and_(rollup.c.segment == number, rollup.c.bucket < end // grain) for number, end in starts.items())))
        .group_by(rollup.c.segment, start)
        .order_by(rollup.c.segment, start)
    )
    return _unpack(await conn.execute(query), wanted), starts


def _by_segment(rows: Iterable[Any]) -> list[tuple[int, list[Any]]]:
    groups: dict[int, list[Any]] = {}
    for row in rows:
        groups.setdefault(row[0], []).append(row)
    return list(groups.items())


def _unpack(rows: Iterable[Any], wanted: list[tuple[str, int]]) -> Curves:
    """Rows of ``segment, x`` and five columns per metric (count, non-finite, minimum, maximum, mean) as curves."""
    curves: Curves = {name: {} for name, _ in wanted}
    for number, group in _by_segment(rows):
        _, starts, *columns = zip(*group, strict=True)
        for place, (name, _) in enumerate(wanted):
            counts, bads, lows, highs, means = columns[5 * place : 5 * place + 5]
            keep = [i for i, (n, b) in enumerate(zip(counts, bads, strict=True)) if n or b]
            if keep:
                curves[name][number] = Curve(
                    [int(starts[i]) for i in keep],
                    [means[i] for i in keep],
                    [lows[i] for i in keep],
                    [highs[i] for i in keep],
                    [(int(starts[i]), f"{int(bads[i])} not finite") for i in keep if bads[i]],
                )
    return curves


def _merged(parts: list[Curves]) -> Curves:
    """Curves of several sets or sources as one; of two values for the same step the later part's stands."""
    merged: Curves = {}
    for part in parts:
        for name, attempts in part.items():
            mine = merged.setdefault(name, {})
            for number, curve in attempts.items():
                mine[number] = _joined(mine[number], curve) if number in mine else curve
    return {name: attempts for name, attempts in merged.items() if attempts}


def _joined(one: Curve, other: Curve) -> Curve:
    if one.x[-1] < other.x[0]:
        return Curve(one.x + other.x, one.y + other.y, one.low + other.low, one.high + other.high, one.bad + other.bad)
    at: dict[int, tuple[float | None, float | None, float | None]] = {}
    for curve in (one, other):
        bounds = zip(curve.low, curve.high, strict=True) if curve.low else ((None, None) for _ in curve.x)
        for x, y, (low, high) in zip(curve.x, curve.y, bounds, strict=True):
            at[x] = (y, low, high)
    steps = sorted(at)
    banded = bool(one.low)
    return Curve(
        steps,
        [at[x][0] for x in steps],
        [at[x][1] for x in steps] if banded else [],
        [at[x][2] for x in steps] if banded else [],
        sorted({**dict(one.bad), **dict(other.bad)}.items()),
    )


async def clock(conn: AsyncConnection, run_id: int, *, first: int, last: int, points: int = 200) -> list[tuple[int, float]]:
    """When steps were taken: about ``points`` pairs of step and Unix seconds, each step by its newest attempt; between them interpolate."""
    stride = max(1, (last - first) // points)
    query = text(
        """
        SELECT DISTINCT found.step, extract(epoch FROM found.at)::float8
        FROM generate_series(CAST(:first AS bigint), CAST(:last AS bigint), CAST(:stride AS bigint)) AS grid(step)
        CROSS JOIN LATERAL (
            SELECT nearest.step, nearest.at FROM segment
            CROSS JOIN LATERAL (
                SELECT step, at FROM point
                WHERE run_id = :run AND point.segment = segment.segment AND step >= grid.step AND step < grid.step + :stride
                ORDER BY step LIMIT 1
            ) nearest
            WHERE segment.run_id = :run ORDER BY segment.segment DESC LIMIT 1
        ) found ORDER BY 1
        """
    )
    found = await conn.execute(query, {"run": run_id, "first": first, "last": last, "stride": stride})
    return [(int(step), float(at)) for step, at in found]


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
