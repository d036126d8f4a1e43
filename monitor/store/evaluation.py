"""Judgement's side of the database: which run to judge, what it has not seen, and the one transaction that writes what came of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, bindparam, case, exists, func, select, text, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from monitor import wire
from monitor.alerts.book import ALARMS, Episode, Transition
from monitor.alerts.routing import Silence
from monitor.store import acting
from monitor.store.tables import alert, delivery, evaluation, event, incident, metric_set, point, run, silence, transition

BACKLOG = 1000
"""A run with so much unseen is being caught up with: those that run now go first."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One run, locked for judgement until the transaction ends. ``seq`` is the last item judged, ``last`` the last there was at the claim."""

    run_id: int
    uid: str
    project: str
    name: str
    algorithm: str | None
    signal: str
    task: str | None
    aux: tuple[str, ...]
    config: Mapping[str, Any]
    tags: tuple[str, ...]
    seq: int
    last: int
    rows: int
    state: Mapping[str, Any]
    failures: int


@dataclass(frozen=True, slots=True)
class Item:
    """One accepted row (``values``) or event (``kind``, ``detail``) of a run, in the order in which the collector took it."""

    seq: int
    segment: int
    step: int | None
    at: datetime
    values: Mapping[str, float] | None = None
    kind: str | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Change:
    """A transition, when it happened in the run's own time, and the names of the channels that carry it, or why none does. ``digests`` maps
    those that carry it in a digest to its seconds.

    The end of an alarm goes to the channels that carried its beginning, whatever ``channels`` says. ``wanted`` is what the run is to be asked
    because of it, each with whether it is a dry run.
    """

    transition: Transition
    at: datetime
    seq: int
    channels: tuple[str, ...] = ()
    muted: str | None = None
    digests: Mapping[str, float] = field(default_factory=dict)
    wanted: Mapping[str, bool] = field(default_factory=dict)


def claimed_columns() -> tuple[ColumnElement[Any], ...]:
    """What :func:`read_claim` reads, from run and evaluation."""
    names = ("id", "uid", "project", "name", "algorithm", "signal", "task_reward", "aux_rewards", "config", "tags", "next_seq")
    judged = ("seq", "rows", "state", "failures")
    return (*(run.c[name] for name in names), *(evaluation.c[name] for name in judged))


def unjudged(row: Any) -> Claim:
    """A run of which nothing has been judged, from a row of run."""
    return Claim(
        run_id=row.id,
        uid=row.uid,
        project=row.project,
        name=row.name,
        algorithm=row.algorithm,
        signal=row.signal,
        task=row.task_reward,
        aux=tuple(row.aux_rewards),
        config=row.config,
        tags=tuple(row.tags),
        seq=0,
        last=row.next_seq - 1,
        rows=0,
        state={},
        failures=0,
    )


def read_claim(row: Any) -> Claim:
    return replace(unjudged(row), seq=row.seq, rows=row.rows, state=row.state, failures=row.failures)


async def claim(conn: AsyncConnection) -> Claim | None:
    """Locks the run that has waited longest with something unseen, those with much of it last; None if there is none or others hold them all."""
    row = (
        await conn.execute(
            select(*claimed_columns())
            .join_from(evaluation, run)
            .where(run.c.watched, run.c.next_seq - 1 > evaluation.c.seq, (evaluation.c.retry_at.is_(None)) | (evaluation.c.retry_at <= func.now()))
            .order_by(run.c.next_seq - evaluation.c.seq > BACKLOG, evaluation.c.updated_at)
            .limit(1)
            .with_for_update(of=evaluation, skip_locked=True)
        )
    ).one_or_none()
    return None if row is None else read_claim(row)


async def unseen(conn: AsyncConnection, claimed: Claim, limit: int) -> list[Item]:
    """The next ``limit`` rows and events of a claimed run, oldest first. Values that were not logged are left out."""
    end = min(claimed.last, claimed.seq + limit)
    rows = await conn.execute(
        select(point.c.seq, point.c.segment, point.c.step, point.c.at, point.c.vals, metric_set.c.names)
        .join_from(point, metric_set)
        .where(point.c.run_id == claimed.run_id, point.c.seq > claimed.seq, point.c.seq <= end)
    )
    items = [
        Item(row.seq, row.segment, row.step, row.at, {name: value for name, value in zip(row.names, row.vals, strict=True) if value is not None})
        for row in rows
    ]
    events = await conn.execute(
        select(event.c.seq, event.c.segment, event.c.step, event.c.at, event.c.kind, event.c.detail).where(
            event.c.run_id == claimed.run_id, event.c.seq > claimed.seq, event.c.seq <= end
        )
    )
    items += [Item(row.seq, row.segment, row.step, row.at, kind=row.kind, detail=row.detail) for row in events]
    return sorted(items, key=lambda item: item.seq)


async def save(
    conn: AsyncConnection,
    claimed: Claim,
    *,
    seq: int,
    rows: int,
    state: Mapping[str, Any],
    severity: str,
    verdict: Mapping[str, Any],
    changes: Sequence[Change],
    open_episodes: Iterable[Episode],
    seconds: float,
    silence_s: float | None = None,
) -> int:
    """Writes transitions, their deliveries, the cursor and the verdict; returns how many deliveries are new.

    A transition that is stored already (the same rows judged again) stays as it is and is not delivered again. ``seconds`` is what judging
    took; ``silence_s`` is how long the run may be silent from now on, None for ever.
    """
    born = await write(conn, claimed.run_id, changes)
    ages = [{"key": UUID(episode.uid), "step": episode.last_step} for episode in open_episodes]
    if ages:
        later = update(alert).where(alert.c.uid == bindparam("key"), alert.c.last_step < bindparam("step"))
        await conn.execute(later.values(last_step=bindparam("step")), ages)
    await conn.execute(
        update(evaluation)
        .where(evaluation.c.run_id == claimed.run_id)
        .values(
            seq=seq,
            rows=rows,
            state=state,
            severity=severity,
            verdict=verdict,
            failures=0,
            retry_at=None,
            seconds=evaluation.c.seconds + seconds,
            deadline_at=text("'infinity'") if silence_s is None else func.now() + timedelta(seconds=silence_s),
            updated_at=func.clock_timestamp(),
        )
    )
    return born


async def write(conn: AsyncConnection, run_id: int, changes: Sequence[Change]) -> int:
    """Stores transitions with their incidents, alerts and deliveries; returns how many deliveries are new."""
    born, touched = 0, set[int]()
    for change in changes:
        incident_id = await _incident(conn, run_id, change) if change.transition.incident else None
        if incident_id is not None:
            touched.add(incident_id)
        alert_id = await _alert(conn, run_id, incident_id, change)
        born += await _transition(conn, run_id, alert_id, change)
    if touched:
        await _settle(conn, touched, changes[-1])
    return born


async def _incident(conn: AsyncConnection, run_id: int, change: Change) -> int:
    moved = change.transition
    opening = insert(incident).values(
        uid=UUID(moved.incident),
        run_id=run_id,
        number=moved.incident_number,
        severity=moved.severity,
        state="open",
        opened_step=moved.step,
        opened_at=change.at,
    )
    worst = case((incident.c.severity == "critical", "critical"), else_=opening.excluded.severity)
    return int(
        (await conn.execute(opening.on_conflict_do_update(index_elements=["uid"], set_={"severity": worst}).returning(incident.c.id))).scalar_one()
    )


async def _settle(conn: AsyncConnection, touched: set[int], last: Change) -> None:
    """An incident is open while one of its alarms is; one that opens again is not acknowledged any more."""
    alarm = exists().where(alert.c.incident_id == incident.c.id, alert.c.state == "open", alert.c.severity.in_(ALARMS))
    mine = update(incident).where(incident.c.id.in_(touched))
    over = {"state": "resolved", "resolved_at": last.at, "resolved_step": last.transition.step}
    again = {"state": "open", "resolved_at": None, "resolved_step": None, "acknowledged_at": None, "acknowledged_by": None}
    await conn.execute(mine.where(~alarm, incident.c.state == "open").values(**over))
    await conn.execute(mine.where(alarm, incident.c.state == "resolved").values(**again))


async def _alert(conn: AsyncConnection, run_id: int, incident_id: int | None, change: Change) -> int:
    moved = change.transition
    closed = moved.to_state in ("resolved", "ok")
    current = {
        "incident_id": incident_id,
        "severity": moved.severity if closed else moved.to_state,
        "state": "resolved" if closed else "open",
        "resolved_step": moved.step if closed else None,
        "resolved_at": change.at if closed else None,
        "finding": wire.spelled(moved.finding),
    }
    fixed = {"uid": UUID(moved.alert), "run_id": run_id, "detector": moved.detector, "organ": moved.organ}
    opening = insert(alert).values(**fixed, opened_step=moved.opened_step, opened_at=change.at, last_step=moved.step, **current)
    return int((await conn.execute(opening.on_conflict_do_update(index_elements=["uid"], set_=current).returning(alert.c.id))).scalar_one())


async def _transition(conn: AsyncConnection, run_id: int, alert_id: int, change: Change) -> int:
    """Stores a transition unless it is known, with its deliveries; returns their number."""
    moved = change.transition
    told: dict[str, float | None] = {**change.digests, **dict.fromkeys(change.channels)}
    if moved.alarms and moved.to_state == "resolved":
        told = await _told(conn, alert_id)
    new = insert(transition).values(
        uid=UUID(moved.uid),
        alert_id=alert_id,
        run_id=run_id,
        seq=change.seq,
        step=moved.step,
        from_state=moved.from_state,
        to_state=moved.to_state,
        reason=moved.reason,
        muted=change.muted,
        finding=wire.spelled(moved.finding),
    )
    stored = await conn.execute(new.on_conflict_do_nothing(index_elements=["uid"]).returning(transition.c.id))
    transition_id = stored.scalar_one_or_none()
    if transition_id is None:
        return 0
    if change.wanted:
        acted = await acting.act(conn, run_id, moved, change.wanted)
        await conn.execute(update(transition).where(transition.c.id == transition_id).values(acted=acted))
    if not told:
        return 0
    born = [{"transition_id": transition_id, "channel": name, "digest_s": every, "due_at": _due(every)} for name, every in told.items()]
    await conn.execute(insert(delivery).values(born))
    return len(told)


def _due(every: float | None) -> ColumnElement[Any]:
    """Now, or the next multiple of ``every`` seconds of the Unix epoch: what is gathered for one digest is due at one moment."""
    if every is None:
        return func.now()
    return func.to_timestamp((func.floor(func.extract("epoch", func.now()) / every) + 1) * every)


async def _told(conn: AsyncConnection, alert_id: int) -> dict[str, float | None]:
    """The channels that carried an alert so far; those that only had it in digests with their seconds."""
    gathered = func.bool_and(delivery.c.digest_s.is_not(None))
    query = (
        select(delivery.c.channel, case((gathered, func.min(delivery.c.digest_s))).label("seconds"))
        .join_from(delivery, transition)
        .where(transition.c.alert_id == alert_id)
        .group_by(delivery.c.channel)
        .order_by(delivery.c.channel)
    )
    return {row.channel: row.seconds for row in await conn.execute(query)}


async def silences(conn: AsyncConnection) -> list[Silence]:
    """The silences that have not run out."""
    rows = await conn.execute(
        select(silence.c.matcher, silence.c.reason, silence.c.author, silence.c.until).where(silence.c.until > func.now()).order_by(silence.c.id)
    )
    return [Silence(row.matcher, row.reason, row.author, row.until) for row in rows]


async def fail(conn: AsyncConnection, claimed: Claim, sentence: str, wait_s: float) -> None:
    """Records that a run could not be judged and when to try again; its rows stay unseen and its alerts as they are."""
    verdict: dict[str, Any] = {"state": "cannot judge", "sentence": sentence, "reasons": [], "since_step": None, "organs": {}}
    await conn.execute(
        update(evaluation)
        .where(evaluation.c.run_id == claimed.run_id, evaluation.c.seq == claimed.seq)
        .values(
            severity="cannot judge",
            verdict=verdict,
            failures=evaluation.c.failures + 1,
            retry_at=func.now() + timedelta(seconds=wait_s),
            updated_at=func.clock_timestamp(),
        )
    )
