"""The outbox: deliveries that are due, leased to one worker at a time, and what came of each attempt.

A delivery is born in the transaction of its transition. It is sent at least once: a worker that dies after sending leaves a lease that runs
out, and the next worker sends the same message with the same uid. Per run and channel, messages leave in the order of their transitions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Column, ColumnElement, and_, case, delete, exists, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from monitor.alerts.book import load_finding
from monitor.detect.contract import Finding
from monitor.store import enclosures
from monitor.store.enclosures import Other, Sample
from monitor.store.tables import alert, channel, delivery, delivery_attempt, evaluation, incident, run, transition

OUTCOMES = ("sending", "delivered", "failed", "refused")
"""Of an attempt. ``sending`` that stays so is a worker that died; ``refused``: this message will never be taken."""

CHANNEL_STATES = ("ok", "resting", "disabled")
"""``resting`` after repeated failures; ``disabled`` when the receiver says that its address or our secret is wrong."""


@dataclass(frozen=True, slots=True)
class Due:
    """One leased delivery with everything that a message needs. ``attempt`` counts from 1; ``failures`` are the channel's in a row."""

    id: int
    channel: str
    attempt: int
    failures: int
    uid: str
    alert: str
    run_id: int
    run: str
    run_name: str
    project: str
    detector: str
    organ: str
    from_state: str
    to_state: str
    reason: str
    step: int
    opened_step: int
    at: datetime
    finding: Finding
    verdict: str
    incident: str = ""
    samples: tuple[Sample, ...] = ()
    cascade: tuple[Other, ...] = ()
    series: tuple[float, ...] = ()
    standing: str = ""
    opened_at: datetime | None = None
    repeats: int = 0
    thread: dict[str, Any] | None = None
    acted: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of an attempt. ``wait_s`` delays the delivery's next attempt; ``rest_s`` holds back the whole channel. ``thread`` is where the
    channel will put what follows, ``pause_s`` the least time until its next message."""

    state: str
    status: int | None = None
    latency_ms: float | None = None
    error: str | None = None
    wait_s: float = 0.0
    rest_s: float = 0.0
    channel_state: str = "ok"
    thread: Mapping[str, Any] | None = None
    pause_s: float = 0.0


def _past(moment: Column[datetime | None]) -> ColumnElement[bool]:
    return or_(moment.is_(None), moment <= func.now())


async def waiting(conn: AsyncConnection, name: str) -> bool:
    """Whether anything at all is due on a channel; asked before anything is locked."""
    return bool((await conn.execute(select(exists().where(delivery.c.channel == name, *pending(), delivery.c.due_at <= func.now())))).scalar_one())


async def lease(conn: AsyncConnection, name: str, n: int, lease_s: float, trip: int, *, paced: bool = False) -> list[Due]:
    """Up to ``n`` due deliveries of a channel, leased for ``lease_s`` seconds; none while the channel rests.

    After ``trip`` failures in a row, and where it is ``paced``, a channel gets one delivery at a time, by one worker at a time.
    """
    failures = await opened(conn, name)
    if failures is None:
        return []
    leased = await _lease(conn, name, 1 if paced or failures >= trip else n, lease_s)
    if not leased:
        return []
    await hold(conn, name, lease_s, probe=failures >= trip, paced=paced)
    attempts = [{"delivery_id": key, "attempt": attempt, "outcome": "sending"} for key, attempt in leased.items()]
    await conn.execute(insert(delivery_attempt), attempts)
    return await _load(conn, leased, failures)


async def opened(conn: AsyncConnection, name: str) -> int | None:
    """The failures in a row of a channel, which is locked until the transaction ends; None while nothing may be sent to it."""
    await conn.execute(insert(channel).values(name=name).on_conflict_do_nothing())
    passed = and_(_past(channel.c.rest_until), _past(channel.c.probe_until), _past(channel.c.next_at))
    query = select(channel.c.failures, passed.label("open")).where(channel.c.name == name).with_for_update()
    state = (await conn.execute(query)).one()
    return state.failures if state.open else None


async def hold(conn: AsyncConnection, name: str, lease_s: float, *, probe: bool, paced: bool) -> None:
    """Keeps a channel for the one message that was just leased, until what came of it is recorded or the lease runs out."""
    until = func.now() + timedelta(seconds=lease_s)
    held = {**({"probe_until": until} if probe else {}), **({"next_at": until} if paced else {})}
    if held:
        await conn.execute(update(channel).where(channel.c.name == name).values(**held))


async def _lease(conn: AsyncConnection, name: str, n: int, lease_s: float) -> dict[int, int]:
    """Delivery id to attempt number."""
    earlier, before = delivery.alias("earlier"), transition.alias("before")
    waits = exists().where(
        earlier.c.channel == name,
        earlier.c.state == "pending",
        earlier.c.digest_s.is_(None),
        earlier.c.id < delivery.c.id,
        before.c.id == earlier.c.transition_id,
        before.c.run_id == transition.c.run_id,
    )
    due = (
        select(delivery.c.id)
        .join_from(delivery, transition)
        .where(
            delivery.c.channel == name,
            *ready(),
            ~waits,
        )
        .order_by(delivery.c.due_at, delivery.c.id)
        .limit(n)
        .with_for_update(of=delivery, skip_locked=True)
    )
    taken = await conn.execute(
        update(delivery)
        .where(delivery.c.id.in_(due))
        .values(leased_until=func.now() + timedelta(seconds=lease_s), attempts=delivery.c.attempts + 1)
        .returning(delivery.c.id, delivery.c.attempts)
    )
    return {row.id: row.attempts for row in taken}


def ready() -> tuple[ColumnElement[bool], ...]:
    """Deliveries that are due as messages of their own."""
    return (*pending(), delivery.c.digest_s.is_(None), delivery.c.digest_id.is_(None), delivery.c.due_at <= func.now())


def pending() -> tuple[ColumnElement[bool], ...]:
    """Deliveries that nobody sends at the moment."""
    return delivery.c.state == "pending", _past(delivery.c.leased_until)


async def _load(conn: AsyncConnection, leased: dict[int, int], failures: int) -> list[Due]:
    rows = await conn.execute(
        select(
            delivery.c.id,
            delivery.c.channel,
            delivery.c.repeats,
            transition.c.uid,
            alert.c.uid.label("alert"),
            transition.c.run_id,
            run.c.uid.label("run"),
            run.c.name.label("run_name"),
            run.c.project,
            alert.c.detector,
            alert.c.organ,
            transition.c.from_state,
            transition.c.to_state,
            transition.c.reason,
            transition.c.step,
            alert.c.opened_step,
            alert.c.opened_at,
            transition.c.at,
            transition.c.finding,
            transition.c.acted,
            evaluation.c.verdict["sentence"].as_string().label("verdict"),
            transition.c.seq,
            incident.c.uid.label("incident"),
            case((incident.c.state == "resolved", "resolved"), else_=incident.c.severity).label("standing"),
        )
        .join_from(delivery, transition)
        .join(alert, alert.c.id == transition.c.alert_id)
        .join(run, run.c.id == transition.c.run_id)
        .outerjoin(evaluation, evaluation.c.run_id == run.c.id)
        .outerjoin(incident, incident.c.id == alert.c.incident_id)
        .where(delivery.c.id.in_(leased))
        .order_by(delivery.c.id)
    )
    found = []
    for row in rows.mappings().all():
        texts = {name: str(row[name] or "") for name in ("uid", "alert", "incident", "verdict", "standing", "acted")}
        known = {name: value for name, value in row.items() if name != "seq"}
        finding, story = load_finding(row["finding"]), UUID(texts["incident"] or texts["alert"])
        raised = row["to_state"] not in ("resolved", "ok")
        more: dict[str, Any] = {
            "samples": await enclosures.samples(conn, row["run_id"], row["step"]) if raised else (),
            "series": await enclosures.series(conn, row["run_id"], row["seq"], finding.metric) if raised else (),
            "cascade": await enclosures.cascade(conn, texts["incident"], texts["alert"]) if texts["incident"] else (),
            "thread": await enclosures.thread(conn, row["run_id"], row["channel"], story),
        }
        found.append(Due(attempt=leased[row["id"]], failures=failures, **{**known, **texts, "finding": finding}, **more))
    return found


async def enable(conn: AsyncConnection, names: Sequence[str]) -> None:
    """Ends the rest of disabled channels: whoever starts a worker has had the chance to set them right."""
    fresh = {"failures": 0, "state": "ok", "rest_until": None, "probe_until": None}
    await conn.execute(update(channel).where(channel.c.name.in_(names), channel.c.state == "disabled").values(**fresh))


async def forget(conn: AsyncConnection, name: str) -> bool:
    """Takes a channel out of the list of those that were used, whatever still waits for it; False if it is not in there."""
    return bool((await conn.execute(delete(channel).where(channel.c.name == name))).rowcount)


async def record(conn: AsyncConnection, due: Due, outcome: Outcome) -> None:
    """Writes what came of an attempt, once. A success counts whoever holds the lease by now; a failure only for the latest attempt."""
    mine = delivery_attempt.c.delivery_id == due.id, delivery_attempt.c.attempt == due.attempt, delivery_attempt.c.outcome == "sending"
    told = {"outcome": outcome.state, "status": outcome.status, "latency_ms": outcome.latency_ms, "error": outcome.error}
    if not (await conn.execute(update(delivery_attempt).where(*mine).values(told))).rowcount:
        return
    if outcome.state == "delivered":
        values = {"state": "sent", "sent_at": func.now(), "leased_until": None, "last_error": None}
        await conn.execute(update(delivery).where(delivery.c.id == due.id, delivery.c.state == "pending").values(**values))
        if outcome.thread is not None:
            await enclosures.keep_thread(conn, due.run_id, due.channel, UUID(due.incident or due.alert), outcome.thread)
    else:
        state = "refused" if outcome.state == "refused" else "pending"
        again = func.now() + timedelta(seconds=outcome.wait_s)
        await conn.execute(
            update(delivery)
            .where(delivery.c.id == due.id, delivery.c.state == "pending", delivery.c.attempts == due.attempt)
            .values(state=state, due_at=again, leased_until=None, last_error=outcome.error)
        )
    await note(conn, due.channel, outcome)


async def note(conn: AsyncConnection, name: str, outcome: Outcome) -> None:
    """Updates the channel's health; a receiver that answers at all, even to refuse one message, is well."""
    mine = update(channel).where(channel.c.name == name)
    pace = {"next_at": func.now() + timedelta(seconds=outcome.pause_s) if outcome.pause_s else None}
    if outcome.state == "failed":
        rest = func.greatest(channel.c.rest_until, func.now() + timedelta(seconds=outcome.rest_s)) if outcome.rest_s else channel.c.rest_until
        await conn.execute(
            mine.values(
                failures=channel.c.failures + 1,
                state=outcome.channel_state,
                rest_until=rest,
                probe_until=None,
                last_error=outcome.error,
                last_error_at=func.now(),
                **pace,
            )
        )
    else:
        await conn.execute(mine.values(failures=0, state="ok", rest_until=None, probe_until=None, last_ok_at=func.now(), **pace))
