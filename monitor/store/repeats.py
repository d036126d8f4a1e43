"""Open critical alarms that people were told of and nobody has acknowledged: their deliveries can go out again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import exists, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from monitor.alerts.routing import Facts
from monitor.store.tables import alert, delivery, incident, run, transition


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A delivery that was sent ``waited_s`` seconds ago; ``facts`` are its alarm's."""

    delivery: int
    channel: str
    waited_s: float
    facts: Facts


async def unanswered(conn: AsyncConnection, least_s: float, n: int = 500) -> list[Unanswered]:
    """Deliveries, locked, of alarms that are still critical in runs that still run, sent at least ``least_s`` seconds ago."""
    later, after = delivery.alias("later"), transition.alias("after")
    newer = exists().where(
        later.c.channel == delivery.c.channel,
        later.c.transition_id == after.c.id,
        after.c.alert_id == transition.c.alert_id,
        after.c.id > transition.c.id,
    )
    waited = func.extract("epoch", func.now() - delivery.c.sent_at)
    rows = await conn.execute(
        select(
            delivery.c.id,
            delivery.c.channel,
            waited.label("waited"),
            run.c.project,
            run.c.uid,
            run.c.name,
            run.c.tags,
            alert.c.detector,
            alert.c.organ,
        )
        .join_from(delivery, transition)
        .join(alert, alert.c.id == transition.c.alert_id)
        .join(incident, incident.c.id == alert.c.incident_id)
        .join(run, run.c.id == alert.c.run_id)
        .where(
            alert.c.state == "open",
            alert.c.severity == "critical",
            transition.c.to_state == "critical",
            incident.c.acknowledged_at.is_(None),
            run.c.state == "running",
            delivery.c.state == "sent",
            delivery.c.digest_s.is_(None),
            waited >= least_s,
            ~newer,
        )
        .order_by(delivery.c.sent_at)
        .limit(n)
        .with_for_update(of=delivery, skip_locked=True)
    )
    return [
        Unanswered(
            row.id, row.channel, float(row.waited), Facts(row.project, row.uid, row.name, row.detector, row.organ, "critical", tuple(row.tags))
        )
        for row in rows
    ]


async def send_again(conn: AsyncConnection, keys: Sequence[int]) -> None:
    """Makes sent deliveries due once more, as messages of their own."""
    due = {"state": "pending", "repeats": delivery.c.repeats + 1, "due_at": func.now(), "digest_id": None}
    await conn.execute(update(delivery).where(delivery.c.id.in_(keys), delivery.c.state == "sent").values(**due))
