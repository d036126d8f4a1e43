"""What came of telling people: the log of deliveries, attempt by attempt, and how each receiver is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import and_, case, func, or_, over, select
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.ext.asyncio import AsyncConnection

from monitor.alerts.incident import held_reason
from monitor.store.queries import shown_name
from monitor.store.tables import alert, channel, delivery, delivery_attempt, digest, incident, run, transition

LATELY = timedelta(days=1)
"""Over which the attempts of a receiver are counted."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of one delivery, or of the ``digest`` that carried it. ``outcome`` is ``sending`` while it is under way, or for ever if its
    worker died."""

    at: datetime
    channel: str
    attempt: int
    outcome: str
    status: int | None
    latency_ms: float | None
    error: str | None
    transition: UUID
    to_state: str
    detector: str
    run: str
    run_name: str
    title: str
    incident: UUID | None
    digest: UUID | None

    @property
    def message(self) -> UUID:
        """What was sent, under the identity that the receiver saw."""
        return self.digest or self.transition


@dataclass(frozen=True, slots=True)
class Carried:
    """One change of an alert that went with others in a digest."""

    title: str
    to_state: str
    step: int
    run: str
    run_name: str
    incident: UUID | None


@dataclass(frozen=True, slots=True)
class Load:
    """What a digest carried: how many changes in how many runs, and the first of them. ``collected``: they were gathered on purpose."""

    changes: int
    runs: int
    collected: bool
    first: tuple[Carried, ...]


@dataclass(frozen=True, slots=True)
class Lately:
    """What came of the attempts of one receiver in the last day; ``median_ms`` is how long those took that it accepted."""

    delivered: int = 0
    failed: int = 0
    refused: int = 0
    median_ms: float | None = None


async def attempts(
    conn: AsyncConnection,
    *,
    incident_uid: UUID | None = None,
    channel_name: str = "",
    outcome: str = "",
    message: UUID | None = None,
    before: datetime | None = None,
    limit: int = 200,
    together: bool = False,
) -> list[Attempt]:
    """The delivery log, newest first; ``before`` leaves out what was tried then or later, ``together`` tells a digest once and not by member."""
    carried = and_(digest.c.id == delivery.c.digest_id, digest.c.at <= delivery_attempt.c.at)
    sent_as = func.coalesce(-digest.c.id, delivery_attempt.c.delivery_id)
    query = (
        select(
            delivery_attempt.c.at,
            delivery.c.channel,
            delivery_attempt.c.attempt,
            delivery_attempt.c.outcome,
            delivery_attempt.c.status,
            delivery_attempt.c.latency_ms,
            delivery_attempt.c.error,
            transition.c.uid,
            transition.c.to_state,
            alert.c.detector,
            run.c.uid,
            shown_name,
            func.coalesce(transition.c.finding["title"].as_string(), alert.c.detector),
            incident.c.uid,
            digest.c.uid,
        )
        .join_from(delivery_attempt, delivery)
        .outerjoin(digest, carried)
        .join(transition, transition.c.id == delivery.c.transition_id)
        .join(alert, alert.c.id == transition.c.alert_id)
        .join(run, run.c.id == transition.c.run_id)
        .outerjoin(incident, incident.c.id == alert.c.incident_id)
        .order_by(delivery_attempt.c.at.desc(), sent_as.desc(), delivery_attempt.c.attempt.desc())
        .limit(limit)
    )
    if together:
        query = query.ext(distinct_on(delivery_attempt.c.at, sent_as))
    if message is not None:
        query = query.where(or_(digest.c.uid == message, transition.c.uid == message))
    if incident_uid is not None:
        query = query.where(incident.c.uid == incident_uid)
    if channel_name:
        query = query.where(delivery.c.channel == channel_name)
    if outcome:
        query = query.where(delivery_attempt.c.outcome == outcome)
    if before is not None:
        query = query.where(delivery_attempt.c.at < before)
    return [Attempt(*tuple(row)) for row in await conn.execute(query)]


async def loads(conn: AsyncConnection, digests: Sequence[UUID], most: int = 50) -> dict[UUID, Load]:
    """What each of these digests carried, of its changes the first ``most``."""
    each = over(func.row_number(), partition_by=digest.c.id, order_by=delivery.c.id).label("place")
    found = (
        select(
            digest.c.uid,
            digest.c.collected,
            func.coalesce(transition.c.finding["title"].as_string(), alert.c.detector).label("title"),
            transition.c.to_state,
            transition.c.step,
            run.c.uid.label("run"),
            shown_name.label("run_name"),
            incident.c.uid.label("incident"),
            each,
        )
        .join_from(digest, delivery, delivery.c.digest_id == digest.c.id)
        .join(transition, transition.c.id == delivery.c.transition_id)
        .join(alert, alert.c.id == transition.c.alert_id)
        .join(run, run.c.id == transition.c.run_id)
        .outerjoin(incident, incident.c.id == alert.c.incident_id)
        .where(digest.c.uid.in_(digests))
        .cte("found")
    )
    sums = select(found.c.uid, found.c.collected, func.count(), func.count(found.c.run.distinct())).group_by(found.c.uid, found.c.collected)
    counts = {row[0]: tuple(row)[1:] for row in await conn.execute(sums)}
    names = ("title", "to_state", "step", "run", "run_name", "incident")
    shown: dict[UUID, list[Carried]] = {uid: [] for uid in counts}
    for row in await conn.execute(select(found.c.uid, *(found.c[name] for name in names)).where(found.c.place <= most).order_by(found.c.place)):
        shown[row.uid].append(Carried(*tuple(row)[1:]))
    return {uid: Load(changes, runs, collected, tuple(shown[uid])) for uid, (collected, changes, runs) in counts.items()}


async def told(conn: AsyncConnection, incident_uids: Sequence[UUID]) -> dict[UUID, dict[str, str]]:
    """Per incident and receiver what became of its messages, the worst first: ``refused``, ``failed`` (will be tried again), ``pending`` or
    ``sent``."""
    pending = delivery.c.state == "pending"
    worst = case(
        (func.bool_or(delivery.c.state == "refused"), "refused"),
        (func.bool_or(pending & (delivery.c.attempts > 0)), "failed"),
        (func.bool_or(pending), "pending"),
        else_="sent",
    )
    query = (
        select(incident.c.uid, delivery.c.channel, worst)
        .join_from(delivery, transition)
        .join(alert, alert.c.id == transition.c.alert_id)
        .join(incident, incident.c.id == alert.c.incident_id)
        .where(incident.c.uid.in_(incident_uids))
        .group_by(incident.c.uid, delivery.c.channel)
        .order_by(delivery.c.channel)
    )
    found: dict[UUID, dict[str, str]] = {}
    for uid, name, state in await conn.execute(query):
        found.setdefault(uid, {})[name] = state
    return found


async def muted(conn: AsyncConnection, incident_uids: Sequence[UUID]) -> dict[UUID, str]:
    """Per incident why nobody was last told of an alarm that no other explains."""
    query = (
        select(incident.c.uid, transition.c.muted)
        .ext(distinct_on(incident.c.uid))
        .join_from(transition, alert, alert.c.id == transition.c.alert_id)
        .join(incident, incident.c.id == alert.c.incident_id)
        .where(incident.c.uid.in_(incident_uids), transition.c.muted.is_not(None))
        .where(~transition.c.muted.endswith(held_reason("")))
        .order_by(incident.c.uid, transition.c.id.desc())
    )
    return {row[0]: row[1] for row in await conn.execute(query)}


async def channels(conn: AsyncConnection) -> list[dict[str, Any]]:
    """The health of every receiver that was ever used, and how many deliveries wait for it."""
    waiting = select(func.count()).select_from(delivery).where(delivery.c.channel == channel.c.name, delivery.c.state == "pending")
    query = select(channel, waiting.scalar_subquery().label("waiting")).order_by(channel.c.name)
    return [dict(row) for row in (await conn.execute(query)).mappings()]


async def lately(conn: AsyncConnection) -> dict[str, Lately]:
    """What came of each receiver's attempts in the last day."""
    outcome, took = delivery_attempt.c.outcome, delivery_attempt.c.latency_ms
    query = (
        select(
            delivery.c.channel,
            *(func.count().filter(outcome == each) for each in ("delivered", "failed", "refused")),
            func.percentile_cont(0.5).within_group(took).filter(outcome == "delivered"),
        )
        .join_from(delivery_attempt, delivery)
        .where(delivery_attempt.c.at > func.now() - LATELY)
        .group_by(delivery.c.channel)
    )
    return {row[0]: Lately(*tuple(row)[1:]) for row in await conn.execute(query)}
