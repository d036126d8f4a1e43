"""Many deliveries in one message: those that a route gathers, and a crowd that a paced channel could not carry one by one.

A digest's members are chosen once and stay: a retry, by whoever, says the same under the same uid. Each member is a delivery like any other,
leased, attempted and recorded with the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID, uuid4

from sqlalchemy import bindparam, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from monitor.alerts.entry import Entry
from monitor.store import deliveries
from monitor.store.deliveries import Outcome
from monitor.store.tables import alert, delivery, delivery_attempt, digest, incident, run, transition

MOST = 2000
"""Members of one digest."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """A leased digest. ``attempts`` maps its deliveries to the attempt that this is; ``failures`` are the channel's in a row."""

    id: int
    uid: str
    channel: str
    failures: int
    at: datetime
    collected: bool
    attempts: dict[int, int]
    members: tuple[Entry, ...]

    @property
    def attempt(self) -> int:
        return max(self.attempts.values())


async def lease(conn: AsyncConnection, name: str, lease_s: float, trip: int, *, crowd: int | None = None) -> Gathered | None:
    """The digest that is due on a channel, leased for ``lease_s`` seconds: one that was tried before, else what its routes have gathered, else,
    where more than ``crowd`` deliveries wait, all of them. None while the channel rests."""
    failures = await deliveries.opened(conn, name)
    if failures is None:
        return None
    key = await _unfinished(conn, name)
    if key is None and await _gathered(conn, name):
        key = await _make(conn, name, collected=True)
    elif key is None and await _crowded(conn, name, crowd):
        key = await _make(conn, name, collected=False)
    if key is None:
        return None
    await deliveries.hold(conn, name, lease_s, probe=failures >= trip, paced=True)
    return await _lease(conn, key, failures, lease_s)


async def _unfinished(conn: AsyncConnection, name: str) -> int | None:
    query = select(delivery.c.digest_id).where(delivery.c.channel == name, *deliveries.pending(), delivery.c.due_at <= func.now())
    return (await conn.execute(query.where(delivery.c.digest_id.is_not(None)).order_by(delivery.c.id).limit(1))).scalar_one_or_none()


async def _gathered(conn: AsyncConnection, name: str) -> bool:
    query = select(delivery.c.id).where(delivery.c.channel == name, *deliveries.pending(), delivery.c.due_at <= func.now())
    wanted = query.where(delivery.c.digest_s.is_not(None), delivery.c.digest_id.is_(None)).limit(1)
    return (await conn.execute(wanted)).scalar_one_or_none() is not None


async def _crowded(conn: AsyncConnection, name: str, crowd: int | None) -> bool:
    if crowd is None:
        return False
    some = select(delivery.c.id).where(delivery.c.channel == name, *deliveries.ready()).limit(crowd + 1).subquery()
    return bool((await conn.execute(select(func.count()).select_from(some))).scalar_one() > crowd)


async def _make(conn: AsyncConnection, name: str, *, collected: bool) -> int:
    """A new digest with its members: of a crowd also those that wait for another attempt, so that no run's changes overtake each other."""
    key = int((await conn.execute(insert(digest).values(uid=uuid4(), channel=name, collected=collected).returning(digest.c.id))).scalar_one())
    mine = select(delivery.c.id).where(delivery.c.channel == name, *deliveries.pending(), delivery.c.digest_id.is_(None))
    if collected:
        mine = mine.where(delivery.c.digest_s.is_not(None), delivery.c.due_at <= func.now())
    else:
        mine = mine.where(delivery.c.digest_s.is_(None))
    members = mine.order_by(delivery.c.id).limit(MOST).with_for_update(skip_locked=True)
    await conn.execute(update(delivery).where(delivery.c.id.in_(members)).values(digest_id=key, due_at=func.now()))
    return key


async def _lease(conn: AsyncConnection, key: int, failures: int, lease_s: float) -> Gathered:
    taken = await conn.execute(
        update(delivery)
        .where(delivery.c.digest_id == key, *deliveries.pending())
        .values(leased_until=func.now() + timedelta(seconds=lease_s), attempts=delivery.c.attempts + 1)
        .returning(delivery.c.id, delivery.c.attempts)
    )
    attempts = {row.id: row.attempts for row in taken}
    await conn.execute(insert(delivery_attempt), [{"delivery_id": each, "attempt": n, "outcome": "sending"} for each, n in attempts.items()])
    rows = await conn.execute(
        select(
            transition.c.uid,
            alert.c.uid.label("alert"),
            run.c.project,
            run.c.uid.label("run"),
            run.c.name.label("run_name"),
            alert.c.detector,
            transition.c.to_state.label("state"),
            func.coalesce(transition.c.finding["title"].as_string(), alert.c.detector).label("title"),
            transition.c.step,
            transition.c.at,
            incident.c.uid.label("incident"),
        )
        .join_from(delivery, transition)
        .join(alert, alert.c.id == transition.c.alert_id)
        .join(run, run.c.id == transition.c.run_id)
        .outerjoin(incident, incident.c.id == alert.c.incident_id)
        .where(delivery.c.id.in_(select(delivery.c.id).where(delivery.c.digest_id == key)))
        .order_by(delivery.c.id)
    )
    members = tuple(Entry(**{**row, **{name: str(row[name] or "") for name in ("uid", "alert", "incident")}}) for row in rows.mappings())
    about = (await conn.execute(select(digest.c.uid, digest.c.channel, digest.c.at, digest.c.collected).where(digest.c.id == key))).one()
    return Gathered(key, str(about.uid), about.channel, failures, about.at, about.collected, attempts, members)


async def record(conn: AsyncConnection, gathered: Gathered, outcome: Outcome) -> None:
    """Writes what came of an attempt for every member, like :func:`monitor.store.deliveries.record`."""
    each = [{"key": key, "number": number} for key, number in gathered.attempts.items()]
    this = delivery_attempt.c.delivery_id == bindparam("key"), delivery_attempt.c.attempt == bindparam("number")
    told = {"outcome": outcome.state, "status": outcome.status, "latency_ms": outcome.latency_ms, "error": outcome.error}
    await conn.execute(update(delivery_attempt).where(*this, delivery_attempt.c.outcome == "sending").values(**told), each)
    mine = update(delivery).where(delivery.c.digest_id == gathered.id, delivery.c.state == "pending")
    if outcome.state == "delivered":
        await conn.execute(mine.values(state="sent", sent_at=func.now(), leased_until=None, last_error=None))
    else:
        state = "refused" if outcome.state == "refused" else "pending"
        values = {"state": state, "due_at": func.now() + timedelta(seconds=outcome.wait_s), "leased_until": None, "last_error": outcome.error}
        latest = delivery.c.id == bindparam("key"), delivery.c.attempts == bindparam("number")
        await conn.execute(mine.where(*latest).values(**values), each)
    await deliveries.note(conn, gathered.channel, outcome)


async def members(conn: AsyncConnection, uid: UUID) -> list[UUID]:
    """The transitions that a digest stands for, in order."""
    query = select(transition.c.uid).join_from(delivery, transition).join(digest, digest.c.id == delivery.c.digest_id)
    return list(await conn.scalars(query.where(digest.c.uid == uid).order_by(delivery.c.id)))
