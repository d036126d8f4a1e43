"""Reading series at the resolution of a screen: raw steps while they fit, else buckets with minimum, mean and maximum.

A bucket holds ``width`` steps, a power of two, and is named by its first step. Buckets come from the coarsest rollup level that divides them
and, past the end of the rollups, from the raw rows, so that a reader never waits for the rollups to catch up.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, and_, case, func, or_, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from monitor.store.arithmetic import mean
from monitor.store.rollups import LEVELS
from monitor.store.tables import metric_set, point, rollup, segment

POINTS = 1000
"""A chart is at most a few hundred pixels wide; more buckets than this cannot be told apart."""

FEW_ROWS = 5000
MAX_CHANGED_ROWS = 2000
MAX_CHANGED_BUCKETS = 64
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


Cell = tuple[int, int, float | None, float | None, float | None]
"""A bucket: how many finite and non-finite values, and the finite ones' minimum, maximum and mean."""

Cells = dict[str, dict[int, dict[int, Cell]]]
"""Metric name -> attempt -> first step of the bucket -> bucket."""


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
    sets = await metric_sets(conn, run_id, rows)
    if width == 1:
        wanted = [(set_id, _places(known, names)) for set_id, known in sets.items()]
        return _joined([await _raw(conn, run_id, set_id, places, point.c.step.between(first, last)) for set_id, places in wanted if places])
    cells: Cells = {}
    for set_id, known in sets.items():
        if not (places := _places(known, names)):
            continue
        starts = await _rolled(cells, conn, run_id, set_id, places, first, last, width) if level_for(width) > 0 else {}
        where: ColumnElement[bool] = point.c.step.between(first // width * width, last)
        if starts:
            tails = [and_(point.c.segment == number, point.c.step >= start) for number, start in starts.items()]
            where = and_(where, or_(point.c.segment.not_in(starts), *tails))
        await _bucketed(cells, conn, run_id, set_id, places, where, width)
    return _drawn(cells)


async def changes(conn: AsyncConnection, run_id: int, names: Sequence[str], *, since: int, upto: int, width: int) -> tuple[Curves, set[str]] | None:
    """What the rows with a sequence in ``(since, upto]`` changed: whole points or whole buckets to replace, and every name they hold.

    None when so much changed that reading everything again is cheaper.
    """
    fresh = select(point.c.set_id, point.c.segment, (point.c.step // width * width).label("x")).where(
        point.c.run_id == run_id, point.c.seq > since, point.c.seq <= upto
    )
    found = (await conn.execute(fresh.limit(MAX_CHANGED_ROWS + 1))).all()
    buckets = {(number, int(x)) for _, number, x in found}
    if len(found) > MAX_CHANGED_ROWS or (width > 1 and len(buckets) > MAX_CHANGED_BUCKETS):
        return None
    if not found:
        return {}, set()
    held = {
        set_id: list(named)
        for set_id, named in await conn.execute(select(metric_set.c.id, metric_set.c.names).where(metric_set.c.id.in_({row[0] for row in found})))
    }
    names_held = {name for named in held.values() for name in named}
    if width == 1:
        wanted = [(set_id, _places(known, names)) for set_id, known in held.items()]
        new = and_(point.c.seq > since, point.c.seq <= upto)
        return _joined([await _raw(conn, run_id, set_id, places, new) for set_id, places in wanted if places]), names_held
    # A bucket may hold rows of sets that did not change: it is computed anew from all of them.
    touched = [name for name in names if name in names_held]
    inside = or_(*(and_(point.c.segment == number, point.c.step.between(x, x + width - 1)) for number, x in sorted(buckets)))
    cells: Cells = {}
    for set_id, known in (await metric_sets(conn, run_id, upto) | held).items():
        if places := _places(known, touched):
            await _bucketed(cells, conn, run_id, set_id, places, inside, width)
    return _drawn(cells), names_held


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


@lru_cache(maxsize=512)
def _bucket_columns(places: tuple[int, ...], width: int) -> tuple[ColumnElement[int], list[ColumnElement[Any]]]:
    """The first step of a row's bucket, and five columns for each place. Making them takes longer than the query of an open page."""
    columns: list[ColumnElement[Any]] = []
    for place in places:
        value = point.c.vals[place]
        finite = and_(value > -math.inf, value < math.inf)
        columns += [
            func.count(value).filter(finite),
            func.count(value).filter(~finite),
            func.min(value).filter(finite),
            func.max(value).filter(finite),
            mean(value, case((finite, 1)), float(width)),
        ]
    return (point.c.step // width * width).label("x"), columns


async def _bucketed(
    cells: Cells, conn: AsyncConnection, run_id: int, set_id: int, wanted: list[tuple[str, int]], where: ColumnElement[bool], width: int
) -> None:
    """Adds the buckets of raw rows to ``cells``."""
    start, columns = _bucket_columns(tuple(place for _, place in wanted), width)
    query = (
        select(point.c.segment, start, *columns)
        .where(point.c.run_id == run_id, point.c.set_id == set_id, where)
        .group_by(point.c.segment, start)
        .order_by(point.c.segment, start)
    )
    _add(cells, await conn.execute(query), wanted)


async def _rolled(
    cells: Cells, conn: AsyncConnection, run_id: int, set_id: int, wanted: list[tuple[str, int]], first: int, last: int, width: int
) -> dict[int, int]:
    """Adds the buckets of the rollups to ``cells``; for each attempt the step from which the raw rows are needed because its rollups end there."""
    level = level_for(width)
    grain = LEVEL_BASE**level
    here = and_(rollup.c.run_id == run_id, rollup.c.set_id == set_id, rollup.c.level == level)
    ends = select(rollup.c.segment, func.max(rollup.c.bucket)).where(here).group_by(rollup.c.segment)
    starts = {number: int(bucket) * grain // width * width for number, bucket in await conn.execute(ends)}
    if not starts:
        return {}
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
    _add(cells, await conn.execute(query), wanted)
    return starts


def _by_segment(rows: Iterable[Any]) -> list[tuple[int, list[Any]]]:
    groups: dict[int, list[Any]] = {}
    for row in rows:
        groups.setdefault(row[0], []).append(row)
    return list(groups.items())


def _add(cells: Cells, rows: Iterable[Any], wanted: list[tuple[str, int]]) -> None:
    """Puts rows of ``segment, x`` and five columns per metric (count, non-finite, minimum, maximum, mean) into the buckets they belong to."""
    mine = [cells.setdefault(name, {}) for name, _ in wanted]
    for number, x, *columns in rows:
        for place, attempts in enumerate(mine):
            cell: Cell = tuple(columns[5 * place : 5 * place + 5])
            if cell[0] or cell[1]:
                buckets = attempts.setdefault(number, {})
                buckets[int(x)] = _pooled(buckets[int(x)], cell) if int(x) in buckets else cell


def _pooled(one: Cell, other: Cell) -> Cell:
    """Two sets' rows of the same bucket as one."""
    if not one[0] or not other[0]:
        most = one if one[0] else other
        return most[0], one[1] + other[1], *most[2:]
    n = one[0] + other[0]
    middle = one[4] * (one[0] / n) + other[4] * (other[0] / n)  # type: ignore[operator]
    return n, one[1] + other[1], min(one[2], other[2]), max(one[3], other[3]), middle  # type: ignore[type-var]


def _drawn(cells: Cells) -> Curves:
    """The buckets as curves, in the order of their steps."""
    curves: Curves = {}
    for name, attempts in cells.items():
        for number, buckets in attempts.items():
            x = sorted(buckets)
            found = [buckets[each] for each in x]
            bad = [(step, f"{cell[1]} not finite") for step, cell in zip(x, found, strict=True) if cell[1]]
            curves.setdefault(name, {})[number] = Curve(x, [cell[4] for cell in found], [cell[2] for cell in found], [cell[3] for cell in found], bad)
    return curves


def _joined(parts: list[Curves]) -> Curves:
    """The raw curves of several sets as one; of two values for the same step the later set's stands."""
    joined: Curves = {}
    for part in parts:
        for name, attempts in part.items():
            mine = joined.setdefault(name, {})
            for number, curve in attempts.items():
                mine[number] = _woven(mine[number], curve) if number in mine else curve
    return {name: attempts for name, attempts in joined.items() if attempts}


def _woven(one: Curve, other: Curve) -> Curve:
    at = dict(zip(one.x, one.y, strict=True)) | dict(zip(other.x, other.y, strict=True))
    steps = sorted(at)
    bad = dict(one.bad) | dict(other.bad)
    return Curve(steps, [at[x] for x in steps], [], [], [(x, bad[x]) for x in steps if at[x] is None and x in bad])


async def clock(conn: AsyncConnection, run_id: int, *, first: int, last: int, points: int = 200) -> list[tuple[int, float]]:
    """When steps were taken: about ``points`` pairs of step and Unix seconds, each step by its newest attempt; between them interpolate."""
    stride = max(1, -(-(last - first + 1) // points))
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


async def steps_at(conn: AsyncConnection, run_id: int, times: Sequence[float], *, last: int) -> list[int | None]:
    """The newest step at each of ``times`` (Unix seconds), None before the first; exact up to forty thousand steps, a little early beyond."""
    coarse = await clock(conn, run_id, first=0, last=last)
    found: list[int | None] = []
    for at in times:
        place = bisect_right([moment for _, moment in coarse], at)
        if place == 0:
            found.append(None)
            continue
        until = coarse[place][0] if place < len(coarse) else last
        fine = await clock(conn, run_id, first=coarse[place - 1][0], last=until)
        found.append(max((step for step, moment in fine if moment <= at), default=coarse[place - 1][0]))
    return found
