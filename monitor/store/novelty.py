"""Which parts of a batch are not stored yet: read under the run's lock, so the answer still holds when they are inserted.

Each item comes with its place in the batch, by which a refusal names it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection

from monitor.store.checks import MetricSet, StorableEvent, StorableRollout, StorableRow, first_difference
from monitor.wire import Refusal, spell

Placed = list[tuple[int, StorableRow]]


@dataclass(frozen=True, slots=True)
class Where:
    """The attempt that a batch belongs to."""

    run_id: int
    segment: int


_STORED_ROWS = text("""
    SELECT p.step, p.set_id, p.vals
    FROM unnest(CAST(:steps AS bigint[]), CAST(:sets AS integer[])) AS k (step, set_id)
    JOIN point p ON p.run_id = :run_id AND p.segment = :segment AND p.step = k.step AND p.set_id = k.set_id
""")


async def rows(
    connection: AsyncConnection, where: Where, given: Placed, sets: dict[MetricSet, int], refused: list[Refusal], *, ahead: bool
) -> tuple[Placed, Placed]:
    """The new rows and the ones that are stored already; a row whose key is stored with another value is refused.

    ``ahead`` says that nothing is stored at these steps, so the database need not be asked.
    """
    if not given:
        return [], []
    keys = [(row.step, sets[row.metrics]) for _, row in given]
    asked = {"steps": [step for step, _ in keys], "sets": [set_id for _, set_id in keys]}
    found = () if ahead else await _ask(connection, _STORED_ROWS, where, **asked)
    stored = {(one.step, one.set_id): one.vals for one in found}
    new: Placed = []
    known: Placed = []
    for key, (index, row) in zip(keys, given, strict=True):
        if key not in stored:
            stored[key] = row.vals
            new.append((index, row))
        elif (place := first_difference(stored[key], row.vals)) is None:
            known.append((index, row))
        else:
            kept = stored[key][place]
            reason = f"step {row.step} is stored with {'no value' if kept is None else spell(kept)}, which is kept"
            refused.append(Refusal("row", index, f"values.{row.metrics.names[place]}", reason))
    return new, known


_STORED_HISTS = text("""
    SELECT h.bucket, h.metric, h.counts
    FROM unnest(CAST(:steps AS bigint[]), CAST(:metrics AS text[])) AS k (step, metric)
    JOIN hist h ON h.run_id = :run_id AND h.segment = :segment AND h.metric = k.metric AND h.level = 0 AND h.bucket = k.step
""")


async def hists(connection: AsyncConnection, where: Where, given: Placed, refused: list[Refusal], *, ahead: bool) -> list[dict[str, Any]]:
    """The columns of the new histograms of ``given``; one whose step is stored with other counts is refused."""
    named = [(index, row.step, name, counts) for index, row in given for name, counts in row.hists.items()]
    if not named:
        return []
    asked: dict[str, list[Any]] = {"steps": [step for _, step, _, _ in named], "metrics": [name for _, _, name, _ in named]}
    found = () if ahead else await _ask(connection, _STORED_HISTS, where, **asked)
    stored = {(one.bucket, one.metric): one.counts for one in found}
    new = []
    for index, step, name, counts in named:
        if (step, name) not in stored:
            stored[step, name] = counts
            new.append({"metric": name, "level": 0, "bucket": step, "counts": counts})
        elif stored[step, name] != counts:
            refused.append(Refusal("row", index, f"hists.{name}", f"step {step} is stored with other counts, which are kept"))
    return new


_STORED_ROLLOUTS = text("""
    SELECT k.place - 1 AS place, r.turns = CAST(k.turns AS jsonb) AS same
    FROM unnest(CAST(:steps AS bigint[]), CAST(:ordinals AS integer[]), CAST(:turns AS text[])) WITH ORDINALITY AS k (step, ordinal, turns, place)
    JOIN rollout r ON r.run_id = :run_id AND r.segment = :segment AND r.step = k.step AND r.ordinal = k.ordinal
""")


async def rollouts(
    connection: AsyncConnection, where: Where, given: list[tuple[int, StorableRollout]], refused: list[Refusal]
) -> tuple[list[StorableRollout], int]:
    """The new rollouts, and how many are stored already; one whose step and ordinal are stored with other text is refused."""
    if not given:
        return [], 0
    ones = [one for _, one in given]
    keys: dict[str, list[Any]] = {
        "steps": [one.step for one in ones],
        "ordinals": [one.ordinal for one in ones],
        "turns": [one.turns for one in ones],
    }
    stored = {one.place: one.same for one in await _ask(connection, _STORED_ROLLOUTS, where, **keys)}
    new: dict[tuple[int, int], StorableRollout] = {}
    known = 0
    for place, (index, one) in enumerate(given):
        earlier = new.get((one.step, one.ordinal))
        if place not in stored and earlier is None:
            new[one.step, one.ordinal] = one
        elif stored.get(place) or (earlier is not None and earlier.turns == one.turns):
            known += 1
        else:
            refused.append(Refusal("rollout", index, "ordinal", f"step {one.step} has another rollout under {one.ordinal}, which is kept"))
    return list(new.values()), known


_STORED_EVENTS = text("""
    SELECT DISTINCT k.place - 1 AS place
    FROM unnest(CAST(:ats AS timestamptz[]), CAST(:steps AS bigint[]), CAST(:kinds AS text[]), CAST(:details AS text[]))
        WITH ORDINALITY AS k (at, step, kind, detail, place)
    JOIN event e ON e.run_id = :run_id AND e.at = k.at AND e.segment = :segment AND e.kind = k.kind
        AND e.step IS NOT DISTINCT FROM k.step AND e.detail = CAST(k.detail AS jsonb)
""")


async def events(connection: AsyncConnection, where: Where, given: list[tuple[int, StorableEvent]]) -> tuple[list[StorableEvent], int]:
    """The new events, and how many are stored already. Events have no key: one that equals another in everything is the same."""
    if not given:
        return [], 0
    ones = [one for _, one in given]
    keys: dict[str, list[Any]] = {"ats": [one.at for one in ones], "steps": [one.step for one in ones], "kinds": [one.kind for one in ones]}
    found = await _ask(connection, _STORED_EVENTS, where, **keys, details=[one.detail for one in ones])
    stored = {one.place for one in found}
    new = list(dict.fromkeys(one for place, one in enumerate(ones) if place not in stored))
    return new, len(ones) - len(new)


async def _ask(connection: AsyncConnection, query: TextClause, where: Where, **keys: list[Any]) -> Any:
    return await connection.execute(query, {"run_id": where.run_id, "segment": where.segment, **keys})
