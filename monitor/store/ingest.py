"""Taking in what runs send.

Every function locks the run's row, so that one transaction at a time gives a run its sequence numbers: they have no gap, and whoever has read up
to one of them never finds a smaller one later. What a call answers is durable once the caller's transaction has committed.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from sqlalchemy import Integer, Text, column, func, insert, select, text, update
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from monitor.metrics import MAX_COUNT
from monitor.store import novelty
from monitor.store.checks import (
    BadField,
    MetricSet,
    StorableEvent,
    StorableRow,
    check_event,
    check_key,
    check_rollout,
    check_row,
    check_start,
    check_time,
    clean,
)
from monitor.store.novelty import Where
from monitor.store.tables import evaluation, event, hist, metric_set, point, request, rollout, rollup_cursor, run, segment
from monitor.wire import END_STATES, MAX_ROWS_PER_BATCH, Ack, Batch, Refusal, RunEnd, RunStart, Started

REQUEST_DONE = "request_done"
"""The kind of event by which a run reports that it has obeyed: ``detail["request"]`` names what."""

LATE, ON_TIME = "late_rows", "rows_on_time"
"""The kinds of event that precede rows that arrive more than :data:`LATE_S` after they were logged, and those that do so no longer."""

LATE_S = 300.0
MAX_SEGMENTS = 2**15
MAX_REASON_LENGTH = 10_000
_KNOWN_SETS = "vitals_metric_sets"
_MAX_KNOWN_SETS = 1000


class UnknownRun(LookupError):
    """No such run, or no such attempt of it: the client has to post the run's start again. ``field`` says which."""

    def __init__(self, field: str, sentence: str) -> None:
        super().__init__(sentence)
        self.field = field


async def start_run(connection: AsyncConnection, start: RunStart, *, url: str = "") -> Started:
    """Opens a run, or a further attempt of it as a new segment. Repeating it for the same attempt changes nothing. Raises BadField.

    ``url`` is the address of the pages, for the answer.
    """
    uid, attempt = check_key("run", start.run), check_key("attempt", start.attempt)
    columns, began = check_start(start), check_time("started_at", start.started_at)
    answer = Started(run=uid, segment=0, url=f"{url}/run/{uid}")
    new = upsert(run).values(uid=uid, created_at=began, **columns).on_conflict_do_nothing(index_elements=["uid"]).returning(run.c.id)
    run_id = (await connection.execute(new)).scalar_one_or_none()
    if run_id is None:
        run_id = (await connection.execute(select(run.c.id).where(run.c.uid == uid).with_for_update(key_share=True))).scalar_one()
        known = select(segment.c.attempt, segment.c.segment).where(segment.c.run_id == run_id).order_by(segment.c.segment)
        segments = {row.attempt: row.segment for row in await connection.execute(known)}
        if attempt in segments:
            answer.segment = segments[attempt]
            return answer
        answer.segment = len(segments)
        if answer.segment >= MAX_SEGMENTS:
            raise BadField("attempt", f"the run has {MAX_SEGMENTS} attempts, which is the most; start a new run")
        reopened = {"state": "running", "end_reason": None, "finished_at": None, "last_seen_at": func.now(), "watched": True}
        await connection.execute(update(run).where(run.c.id == run_id).values(**columns, **reopened))
    else:
        await connection.execute(insert(evaluation).values(run_id=run_id))
        await connection.execute(insert(rollup_cursor).values(run_id=run_id))
    await connection.execute(insert(segment).values(run_id=run_id, segment=answer.segment, attempt=attempt, started_at=began))
    return answer


async def accept(connection: AsyncConnection, run_uid: str, batch: Batch) -> Ack:
    """Stores what is new in ``batch``. Raises UnknownRun, and BadField if the batch as a whole is wrong.

    A row, rollout or event that is already stored counts as duplicate. One whose key is stored with other content is refused and the first kept,
    as is anything with a wrong field; the rest of the batch is stored.
    """
    for kind, items in (("rows", batch.rows), ("rollouts", batch.rollouts), ("events", batch.events)):
        if len(items) > MAX_ROWS_PER_BATCH:
            raise BadField(kind, f"the batch holds {len(items)} of them, at most {MAX_ROWS_PER_BATCH}")
    refused: list[Refusal] = []
    rows = _checked("row", batch.rows, check_row, refused)
    rollouts = _checked("rollout", batch.rollouts, check_rollout, refused)
    events = _checked("event", batch.events, check_event, refused)
    dropped = _checked_counts(batch.dropped, refused)

    place = await _lock(connection, run_uid, batch.attempt)
    where = Where(place.run_id, place.segment)
    sets = await _set_ids(connection, {row.metrics for _, row in rows})
    ahead = place.is_behind(row.step for _, row in rows)
    fresh_rows, known_rows = await novelty.rows(connection, where, rows, sets, refused, ahead=ahead)
    hists = await novelty.hists(connection, where, [*fresh_rows, *known_rows], refused, ahead=ahead)
    fresh_rollouts, known_rollouts = await novelty.rollouts(connection, where, rollouts, refused)
    fresh_events, known_events = await novelty.events(connection, where, events)

    marks, late = _punctuality(batch.sent_at, [row for _, row in fresh_rows], place.late)
    next_seq = await _insert(connection, place, [row for _, row in fresh_rows], [*marks, *fresh_events], sets)
    samples = [asdict(one) | {"turns": json.loads(one.turns), "rewards": json.loads(one.rewards)} for one in fresh_rollouts]
    for table, values in ((hist, hists), (rollout, samples)):
        if values:
            await connection.execute(insert(table), [asdict(where) | one for one in values])
    accepted = len(fresh_rows) + len(fresh_rollouts) + len(fresh_events)
    await _advance(connection, place, next_seq, [row.step for _, row in fresh_rows], reopen=accepted > 0, late=late)
    await _note_dropped(connection, place, dropped)
    requests = await _open_requests(connection, place, fresh_events)
    return Ack(accepted, len(known_rows) + known_rollouts + known_events, refused, requests)


async def finish(connection: AsyncConnection, run_uid: str, end: RunEnd) -> str:
    """Ends a run and returns its state. The end of an attempt that a newer one has replaced changes nothing. Raises BadField and UnknownRun."""
    if end.state not in END_STATES:
        raise BadField("state", f"must be one of {', '.join(END_STATES)}")
    at = check_time("at", end.at)
    place = await _lock(connection, run_uid, end.attempt)
    if place.segment < place.newest:
        return str((await connection.execute(select(run.c.state).where(run.c.id == place.run_id))).scalar_one())
    reason = None if end.reason is None else clean(end.reason[:MAX_REASON_LENGTH])
    ended = {"state": end.state, "end_reason": reason, "finished_at": at, "last_seen_at": func.now(), "watched": True}
    await connection.execute(update(run).where(run.c.id == place.run_id).values(**ended))
    return end.state


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a batch goes, read under the run's lock. ``last_step`` is the largest step of the newest attempt."""

    run_id: int
    next_seq: int
    last_step: int | None
    segment: int
    newest: int
    first_step: int | None
    dropped: dict[str, int]
    requests: list[str]
    late: bool

    def is_behind(self, steps: Iterable[int]) -> bool:
        """Whether the attempt has nothing stored at any of ``steps``, because it has not come so far."""
        if self.first_step is None:
            return True
        return self.segment == self.newest and self.last_step is not None and min(steps, default=0) > self.last_step


# Statements that every batch runs are text: building and hashing an expression costs more than running it.
_LOCK = text("SELECT id, next_seq, last_step, late FROM run WHERE uid = :run FOR NO KEY UPDATE")
_PLACE = text("""
    SELECT segment, first_step, dropped, (SELECT max(segment) FROM segment WHERE run_id = :run) AS newest,
        ARRAY(SELECT kind FROM request WHERE run_id = :run AND done_at IS NULL ORDER BY id) AS requests
    FROM segment WHERE run_id = :run AND attempt = :attempt
""").columns(segment.c.segment, segment.c.first_step, segment.c.dropped, column("newest", Integer), column("requests", ARRAY(Text)))


async def _lock(connection: AsyncConnection, run_uid: str, attempt: str) -> _Place:
    found = (await connection.execute(_LOCK, {"run": run_uid})).one_or_none()
    if found is None:
        raise UnknownRun("run", f"There is no run {run_uid[:80]!r}; post its start to /api/v1/runs first.")
    # A statement of its own: what it reads must be newer than the wait for the lock.
    known = (await connection.execute(_PLACE, {"run": found.id, "attempt": attempt})).one_or_none()
    if known is None:
        raise UnknownRun("attempt", f"The run {run_uid[:80]!r} has no attempt {attempt[:80]!r}; post its start to /api/v1/runs first.")
    segment_ = known.segment, known.newest, known.first_step, known.dropped, known.requests
    return _Place(found.id, found.next_seq, found.last_step, *segment_, found.late)


_Message = TypeVar("_Message")
_Storable = TypeVar("_Storable")


def _checked(kind: str, items: Sequence[_Message], check: Callable[[_Message], _Storable], refused: list[Refusal]) -> list[tuple[int, _Storable]]:
    """The items that may be stored, each with its place in the batch."""
    kept: list[tuple[int, _Storable]] = []
    for index, item in enumerate(items):
        try:
            kept.append((index, check(item)))
        except BadField as error:
            refused.append(Refusal(kind, index, error.field, error.reason))
    return kept


def _checked_counts(dropped: dict[str, int], refused: list[Refusal]) -> dict[str, int]:
    counts = {}
    for name, count in list(dropped.items())[:100]:
        if 0 <= count <= MAX_COUNT and name.isprintable() and 0 < len(name) <= 100:
            counts[name] = count
        else:
            refused.append(Refusal("batch", 0, f"dropped.{ascii(name[:40])[1:-1]}", "must be a count under a short name"))
    return counts


async def _set_ids(connection: AsyncConnection, wanted: set[MetricSet]) -> dict[MetricSet, int]:
    """The ids of metric sets, made where they are new. Ids known to be committed are remembered with the connection."""
    if not wanted:
        return {}
    info = (await connection.get_raw_connection()).info
    known: dict[bytes, int] = info.setdefault(_KNOWN_SETS, {})
    if len(known) > _MAX_KNOWN_SETS:
        known.clear()
    if missing := sorted({one.sha for one in wanted} - known.keys()):
        query = select(metric_set.c.sha, metric_set.c.id).where(metric_set.c.sha == func.any(missing))
        known |= {row.sha: row.id for row in await connection.execute(query)}
        if new := sorted((one for one in wanted if one.sha not in known), key=lambda one: one.sha):
            rows = [{"sha": one.sha, "names": list(one.names)} for one in new]
            await connection.execute(upsert(metric_set).on_conflict_do_nothing(), rows)
            # Not remembered: this transaction may still be rolled back.
            known = known | {row.sha: row.id for row in await connection.execute(query)}
    return {one: known[one.sha] for one in wanted}


_INSERT_POINT = insert(point)


async def _insert(
    connection: AsyncConnection, place: _Place, rows: list[StorableRow], events: list[StorableEvent], sets: dict[MetricSet, int]
) -> int:
    """Stores rows and events under the run's next sequence numbers and returns the one after them.

    Rows keep their order; an event comes before the rows that are not older than it, so that a changed setting precedes what it changes.
    """
    points: list[dict[str, Any]] = []
    happened: list[dict[str, Any]] = []
    seq = place.next_seq
    waiting = deque(sorted(events, key=lambda one: one.at))
    for row in [*rows, None]:
        while waiting and (row is None or waiting[0].at <= row.at):
            one = waiting.popleft()
            happened.append({"seq": seq, "step": one.step, "at": one.at, "kind": one.kind, "detail": json.loads(one.detail)})
            seq += 1
        if row is not None:
            points.append({"seq": seq, "step": row.step, "set_id": sets[row.metrics], "at": row.at, "vals": row.vals})
            seq += 1
    where = {"run_id": place.run_id, "segment": place.segment}
    if points:
        await connection.execute(_INSERT_POINT, [where | one for one in points])
    if happened:
        await connection.execute(insert(event), [where | one for one in happened])
    return seq


_ADVANCE = text("""
    UPDATE run SET next_seq = :next_seq, last_seen_at = now(), last_step = coalesce(CAST(:last_step AS bigint), last_step),
        state = CASE WHEN :reopen THEN 'running' ELSE state END,
        end_reason = CASE WHEN :reopen THEN NULL ELSE end_reason END,
        finished_at = CASE WHEN :reopen THEN NULL ELSE finished_at END,
        watched = watched OR next_seq < :next_seq,
        late = :late
    WHERE id = :run
""")


async def _advance(connection: AsyncConnection, place: _Place, next_seq: int, steps: list[int], *, reopen: bool, late: bool) -> None:
    """Moves the run's sequence and its last step (of the newest attempt); a run that still sends is running."""
    newest = place.segment == place.newest
    last_step = None
    if steps and newest:
        # A new attempt may begin below the last step of the one before it.
        last_step = max(steps) if place.first_step is None else max(place.last_step or 0, *steps)
    moved = {"run": place.run_id, "next_seq": next_seq, "last_step": last_step, "reopen": reopen and newest, "late": late}
    await connection.execute(_ADVANCE, moved)
    if steps and (place.first_step is None or min(steps) < place.first_step):
        ours = update(segment).where(segment.c.run_id == place.run_id, segment.c.segment == place.segment)
        await connection.execute(ours.values(first_step=min(steps)))


def _punctuality(sent_at: float | None, rows: Iterable[StorableRow], late: bool) -> tuple[list[StorableEvent], bool]:
    """A mark before the first row that arrives long after it was logged, and before the first that does not; and which the last one was.

    Both times are the client's, so that its clock may be wrong. A client that does not say when it sends is on time.
    """
    marks: list[StorableEvent] = []
    for row in rows:
        by = 0.0 if sent_at is None else sent_at - row.at.timestamp()
        if (by > LATE_S) != late:
            late = not late
            marks.append(StorableEvent(row.step, row.at, LATE if late else ON_TIME, json.dumps({"seconds": round(by, 3)} if late else {})))
    return marks, late


async def _note_dropped(connection: AsyncConnection, place: _Place, dropped: dict[str, int]) -> None:
    """Keeps the largest count that the attempt ever told, and on the run their sum over its attempts."""
    told = place.dropped | {name: max(count, place.dropped.get(name, 0)) for name, count in dropped.items()}
    if told == place.dropped:
        return
    ours = update(segment).where(segment.c.run_id == place.run_id, segment.c.segment == place.segment)
    await connection.execute(ours.values(dropped=told))
    total: Counter[str] = Counter()
    for counts in await connection.scalars(select(segment.c.dropped).where(segment.c.run_id == place.run_id)):
        total.update(counts)
    await connection.execute(update(run).where(run.c.id == place.run_id).values(dropped=dict(total)))


async def _open_requests(connection: AsyncConnection, place: _Place, events: list[StorableEvent]) -> list[str]:
    """The requests still open, after those that ``request_done`` events in this batch report as obeyed."""
    obeyed = {str(json.loads(one.detail).get("request")) for one in events if one.kind == REQUEST_DONE}
    if closed := obeyed.intersection(place.requests):
        ours = update(request).where(request.c.run_id == place.run_id, request.c.done_at.is_(None), request.c.kind.in_(sorted(closed)))
        await connection.execute(ours.values(done_at=func.now()))
    return [kind for kind in dict.fromkeys(place.requests) if kind not in closed]
