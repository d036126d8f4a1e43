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
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any

from sqlalchemy import ColumnElement, Row, TextClause, and_, func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from monitor.store.arithmetic import mean, plain_mean
from monitor.store.rollups import LEVELS
from monitor.store.tables import metric_set, point, rollup, segment

FEW_STEPS, POINTS = 1000, 500
"""So many steps are drawn one by one; of more, a chart shows this many buckets: it is a few hundred pixels wide."""

FEW_ROWS = 5000
MAX_CHANGED_ROWS = 2000
MAX_CHANGED_BUCKETS = 256
MAX_KNOWN_SETS = 1000
NARROW = 32
"""Buckets of so many steps are computed here from their rows, wider ones by the database."""

LEVEL_BASE = 8
_NAMES_OF_SETS = "vitals_names_of_sets"


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


def width_for(first: int, last: int, points: int | None = None) -> int:
    """The smallest power of two that cuts ``first..last`` into at most ``points`` buckets, or into what a chart shows."""
    if points is None:
        points = FEW_STEPS if last - first < FEW_STEPS else POINTS
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
    attempts = list(await conn.scalars(select(segment.c.segment).where(segment.c.run_id == run_id).order_by(segment.c.segment)))
    begin = first // width * width
    for set_id, known in sets.items():
        if places := _places(known, names):
            starts = await _rolled(cells, conn, run_id, set_id, places, begin, last, width) if level_for(width) > 0 else {}
            stretches = [(number, max(begin, starts.get(number, begin)), last) for number in attempts]
            await _bucketed(cells, conn, run_id, set_id, places, stretches, width)
    return _drawn(cells)


@dataclass(frozen=True, slots=True)
class Span:
    """The rows of a run with a sequence in ``(since, upto]``, as a page sees them that draws buckets of ``width`` steps."""

    run_id: int
    since: int
    upto: int
    width: int


_TOUCHED = text(
    f"""
    SELECT p.run_id, p.set_id, p.segment, touched.x, p.step, p.vals, p.seq > span.since AND p.seq <= span.upto AS fresh
    FROM unnest(CAST(:runs AS bigint[]), CAST(:sinces AS bigint[]), CAST(:uptos AS bigint[]), CAST(:widths AS bigint[]))
        AS span (run_id, since, upto, width)
    CROSS JOIN LATERAL (
        SELECT DISTINCT segment, step / span.width * span.width AS x
        FROM point WHERE run_id = span.run_id AND seq > span.since AND seq <= span.upto LIMIT {MAX_CHANGED_BUCKETS + 1}
    ) touched
    CROSS JOIN LATERAL (
        SELECT * FROM point
        WHERE run_id = span.run_id AND segment = touched.segment AND step BETWEEN touched.x AND touched.x + span.width - 1
            AND (span.width <= {NARROW} OR seq > span.since AND seq <= span.upto)
        OFFSET 0
    ) p
    ORDER BY p.run_id, p.set_id, p.segment, p.step
    """
)
"""Of each span the rows of the buckets that it touched; of wide buckets only those that touched them."""


async def changes(conn: AsyncConnection, spans: Sequence[Span], names: Sequence[str]) -> list[tuple[Curves, set[str]] | None]:
    """What the rows of each span changed: whole points or whole buckets to replace, and every name they hold.

    None for a span that changed so much that reading everything again is cheaper. Many runs cost one query, while their buckets are narrow.
    """
    asked = [span for span in spans if 0 < span.upto - span.since <= MAX_CHANGED_ROWS]
    rows: dict[int, list[Row[Any]]] = {}
    if asked:
        runs, sinces, uptos, widths = zip(*((span.run_id, span.since, span.upto, span.width) for span in asked), strict=True)
        for row in await conn.execute(_TOUCHED, {"runs": runs, "sinces": sinces, "uptos": uptos, "widths": widths}):
            rows.setdefault(row.run_id, []).append(row)
    known = await _names_of(conn, {row.set_id for found in rows.values() for row in found})
    return [await _changed(conn, span, rows.get(span.run_id, []), known, names) for span in spans]


async def _changed(
    conn: AsyncConnection, span: Span, rows: list[Row[Any]], known: dict[int, list[str]], names: Sequence[str]
) -> tuple[Curves, set[str]] | None:
    buckets = {(row.segment, int(row.x)) for row in rows}
    if span.upto - span.since > MAX_CHANGED_ROWS or len(buckets) > MAX_CHANGED_BUCKETS:
        return None
    held = {name for set_id in {row.set_id for row in rows if row.fresh} for name in known[set_id]}
    touched = [name for name in names if name in held]
    if span.width <= NARROW:
        return _gathered(rows, known, touched, span.width), held
    # A bucket may hold rows of sets that did not change: it is computed anew from all of them.
    inside = [(number, x, x + span.width - 1) for number, x in sorted(buckets)]
    cells: Cells = {}
    for set_id, its in (await metric_sets(conn, span.run_id, span.upto) | known).items() if touched else ():
        if places := _places(its, touched):
            await _bucketed(cells, conn, span.run_id, set_id, places, inside, span.width)
    return _drawn(cells), held


async def _names_of(conn: AsyncConnection, set_ids: set[int]) -> dict[int, list[str]]:
    """The names of metric sets, which never change: they are remembered with the connection."""
    if not set_ids:
        return {}
    known: dict[int, list[str]] = (await conn.get_raw_connection()).info.setdefault(_NAMES_OF_SETS, {})
    if missing := set_ids - known.keys():
        if len(known) > MAX_KNOWN_SETS:
            known.clear()
            missing = set_ids
        found = await conn.execute(select(metric_set.c.id, metric_set.c.names).where(metric_set.c.id.in_(missing)))
        known.update((set_id, list(names)) for set_id, names in found)
    return {set_id: known[set_id] for set_id in set_ids}


def _gathered(rows: Iterable[Row[Any]], known: dict[int, list[str]], names: Sequence[str], width: int) -> Curves:
    """The curves of whole rows, which are in the order of set, attempt and step."""
    parts: list[Curves] = []
    cells: Cells = {}
    for set_id, its in groupby(rows, key=attrgetter("set_id")):
        if not (places := _places(known[set_id], names)):
            continue
        if width == 1:
            parts.append(_points([(row.segment, row.step, *(row.vals[place - 1] for _, place in places)) for row in its], places))
        else:
            _add(cells, (_bucket(key, list(mine), places, width) for key, mine in groupby(its, key=attrgetter("segment", "x"))), places)
    return _joined(parts) if width == 1 else _drawn(cells)


def _bucket(key: tuple[int, int], rows: list[Row[Any]], places: list[tuple[str, int]], width: int) -> tuple[Any, ...]:
    """What :func:`_bucketed` would read of a bucket: the arithmetic is the same to the last bit."""
    told: list[Any] = [*key]
    for _, place in places:
        values = [row.vals[place - 1] for row in rows if row.vals[place - 1] is not None]
        finite = [value for value in values if math.isfinite(value)]
        told += [len(finite), len(values) - len(finite), min(finite, default=None), max(finite, default=None), plain_mean(finite, float(width))]
    return tuple(told)


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
    return _points(await conn.execute(query), wanted)


def _points(rows: Iterable[Any], wanted: list[tuple[str, int]]) -> Curves:
    """Rows of ``segment, step`` and a value per metric, in this order, as curves."""
    curves: Curves = {name: {} for name, _ in wanted}
    for number, mine in groupby(rows, key=itemgetter(0)):
        _, steps, *columns = zip(*mine, strict=True)
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


Stretch = tuple[int, int, int]
"""An attempt and the first and the last step, or rollup bucket, of a part of it."""


@lru_cache(maxsize=512)
def _of_rows(places: tuple[int, ...], width: int) -> TextClause:
    """The buckets of raw rows in stretches of an attempt, with five columns for each place. Text, because to build an expression of so many
    columns, and to compile it, takes longer than to run it."""
    columns = ""
    for place in places:
        value = f"p.vals[{place}]"
        finite = f"{value} > '-Infinity' AND {value} < 'Infinity'"
        columns += f""", count({value}) FILTER (WHERE {finite}), count({value}) FILTER (WHERE NOT ({finite})),
            min({value}) FILTER (WHERE {finite}), max({value}) FILTER (WHERE {finite}),
            {mean(value, f"CASE WHEN {finite} THEN 1 END", float(width))}"""
    return text(f"""
        SELECT p.segment, p.step / {width} * {width} AS x {columns}
        FROM {_STRETCHES} CROSS JOIN LATERAL (
            SELECT segment, step, vals FROM point
            WHERE run_id = :run AND segment = stretch.segment AND step BETWEEN stretch.first AND stretch.last AND set_id = :set
        ) p
        GROUP BY 1, 2 ORDER BY 1, 2""")


@lru_cache(maxsize=512)
def _of_rollups(places: tuple[int, ...], width: int) -> TextClause:
    """The same of the buckets of a rollup level."""
    grain = LEVEL_BASE ** level_for(width)
    columns = ""
    for place in places:
        count = f"p.n[{place}]"
        columns += f""", sum({count}), sum(p.bad[{place}]), min(p.mn[{place}]) FILTER (WHERE {count} > 0),
            max(p.mx[{place}]) FILTER (WHERE {count} > 0), {mean(f"p.mean[{place}]", count, float(width))}"""
    return text(f"""
        SELECT p.segment, p.bucket * {grain} / {width} * {width} AS x {columns}
        FROM {_STRETCHES} CROSS JOIN LATERAL (
            SELECT * FROM rollup
            WHERE run_id = :run AND set_id = :set AND segment = stretch.segment AND level = {level_for(width)}
                AND bucket BETWEEN stretch.first AND stretch.last
        ) p
        GROUP BY 1, 2 ORDER BY 1, 2""")


_STRETCHES = """
    unnest(CAST(:segments AS integer[]), CAST(:firsts AS bigint[]), CAST(:lasts AS bigint[])) AS stretch (segment, first, last)"""


async def _bucketed(
    cells: Cells, conn: AsyncConnection, run_id: int, set_id: int, wanted: list[tuple[str, int]], stretches: Sequence[Stretch], width: int
) -> None:
    """Adds the buckets of the raw rows of ``stretches`` to ``cells``."""
    if stretches:
        query = _of_rows(tuple(place for _, place in wanted), width)
        _add(cells, await conn.execute(query, _asked(run_id, set_id, stretches)), wanted)


async def _rolled(
    cells: Cells, conn: AsyncConnection, run_id: int, set_id: int, wanted: list[tuple[str, int]], first: int, last: int, width: int
) -> dict[int, int]:
    """Adds the buckets of the rollups to ``cells``; for each attempt the step from which the raw rows are needed because its rollups end there."""
    grain = LEVEL_BASE ** level_for(width)
    here = and_(rollup.c.run_id == run_id, rollup.c.set_id == set_id, rollup.c.level == level_for(width))
    ends = select(rollup.c.segment, func.max(rollup.c.bucket)).where(here).group_by(rollup.c.segment)
    starts = {number: int(bucket) * grain // width * width for number, bucket in await conn.execute(ends)}
    stretches = [(number, first // grain, min(last // grain, end // grain - 1)) for number, end in starts.items()]
    if stretches:
        query = _of_rollups(tuple(place for _, place in wanted), width)
        _add(cells, await conn.execute(query, _asked(run_id, set_id, stretches)), wanted)
    return starts


def _asked(run_id: int, set_id: int, stretches: Sequence[Stretch]) -> dict[str, Any]:
    segments, firsts, lasts = zip(*stretches, strict=True)
    return {"run": run_id, "set": set_id, "segments": segments, "firsts": firsts, "lasts": lasts}


def _add(cells: Cells, rows: Iterable[Any], wanted: list[tuple[str, int]]) -> None:
    """Puts rows of ``segment, x`` and five columns per metric (count, non-finite, minimum, maximum, mean) into the buckets they belong to.

    Rows of an attempt follow each other. Column by column: a page of ten runs is half a million numbers.
    """
    for number, mine in groupby(rows, key=itemgetter(0)):
        _, steps, *columns = zip(*mine, strict=True)
        for place, (name, _) in enumerate(wanted):
            five = zip(*columns[5 * place : 5 * place + 5], strict=True)
            fresh: dict[int, Cell] = {x: cell for x, cell in zip(steps, five, strict=True) if cell[0] or cell[1]}
            if fresh:
                buckets = cells.setdefault(name, {}).setdefault(number, {})
                both = fresh.keys() & buckets.keys()
                buckets.update(fresh | {x: _pooled(buckets[x], fresh[x]) for x in both} if both else fresh)


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
            steps = sorted(buckets)
            _, odd, low, high, y = (list(column) for column in zip(*(buckets[x] for x in steps), strict=True))
            bad = [(x, f"{count} not finite") for x, count in zip(steps, odd, strict=True) if count]
            curves.setdefault(name, {})[number] = Curve(steps, y, low, high, bad)
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
