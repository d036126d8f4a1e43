"""What people see of incidents and do about them: acknowledge, close, comment, mark, silence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Select, case, delete, exists, func, insert, or_, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from monitor.alerts.book import is_alarm
from monitor.alerts.incident import first_causes
from monitor.alerts.judgement import close, context, dump_verdict
from monitor.alerts.routing import MATCHABLE
from monitor.store.checks import BadField, check_text, clean
from monitor.store.evaluation import Change, claimed_columns, read_claim, write
from monitor.store.queries import shown_name
from monitor.store.tables import alert, evaluation, incident, note, run, silence, transition

STATES = ("open", "acknowledged", "resolved")
MARKS = ("true", "false")
MAX_TEXT = 10_000


class UnknownIncident(LookupError):
    """There is no such incident, silence or feed position; the text says which."""


@dataclass(frozen=True, slots=True)
class Member:
    """One alert of an incident, in the order in which they began."""

    id: int
    detector: str
    organ: str
    severity: str
    state: str
    began: int
    opened_step: int
    last_step: int
    resolved_step: int | None
    finding: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Note:
    """What somebody did or said."""

    at: datetime
    author: str
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Incident:
    """Alarms of one run that are one story. ``state`` is one of :data:`STATES`; ``lead`` is the title of what causes the rest, of several
    causes the first mover's."""

    uid: UUID
    run: str
    run_name: str
    project: str
    number: int
    state: str
    severity: str
    lead: str
    opened_step: int
    opened_at: datetime
    resolved_step: int | None
    resolved_at: datetime | None
    acknowledged_at: datetime | None
    acknowledged_by: str | None
    mark: str | None
    alerts: tuple[Member, ...] = ()


@dataclass(frozen=True, slots=True)
class Moved:
    """One entry of the feed of transitions; ``cursor`` is the place after it."""

    cursor: str
    id: UUID
    at: datetime
    run: str
    project: str
    detector: str
    from_state: str
    to_state: str
    reason: str
    muted: str | None
    step: int
    incident: UUID | None
    title: str


def _shown() -> ColumnElement[Any]:
    acknowledged = (incident.c.state == "open") & incident.c.acknowledged_at.is_not(None)
    return case((acknowledged, "acknowledged"), else_=incident.c.state)


def _incidents() -> Select[Any]:
    plain = ("uid", "number", "severity", "opened_step", "opened_at", "resolved_step", "resolved_at", "acknowledged_at", "acknowledged_by", "mark")
    return select(
        incident.c.id,
        *(incident.c[name] for name in plain),
        _shown().label("state"),
        run.c.uid.label("run"),
        shown_name.label("run_name"),
        run.c.project,
    ).join_from(incident, run)


async def incidents(
    conn: AsyncConnection,
    *,
    state: str = "",
    severity: str = "",
    run_uid: str | None = None,
    project: str = "",
    detector: str = "",
    words: str = "",
    limit: int = 100,
    offset: int = 0,
) -> list[Incident]:
    """Incidents with their alerts, open ones first, then the newest. Empty filters let everything through; ``state`` is one of :data:`STATES` or
    ``unresolved``, and each of ``words`` stands in the run's name, its project, or a detector or title of an alert."""
    query = _incidents().order_by(incident.c.state == "resolved", incident.c.opened_at.desc(), incident.c.id.desc()).limit(limit).offset(offset)
    if state:
        query = query.where(incident.c.state == "open" if state == "unresolved" else _shown() == state)
    if severity:
        query = query.where(incident.c.severity == severity)
    if run_uid is not None:
        query = query.where(run.c.uid == run_uid)
    if project:
        query = query.where(run.c.project == project)
    if detector:
        query = query.where(exists().where(alert.c.incident_id == incident.c.id, alert.c.detector == detector))
    for word in words.split():
        named = (column.icontains(word, autoescape=True) for column in (run.c.uid, run.c.name, run.c.label, run.c.project))
        told = (column.icontains(word, autoescape=True) for column in (alert.c.detector, alert.c.finding["title"].as_string()))
        query = query.where(or_(*named, exists().where(alert.c.incident_id == incident.c.id, or_(*told))))
    return await _with_alerts(conn, query)


async def count_unresolved(conn: AsyncConnection) -> dict[str, int]:
    """Incidents that are not over, by severity."""
    query = select(incident.c.severity, func.count()).where(incident.c.state == "open").group_by(incident.c.severity)
    return {row[0]: row[1] for row in await conn.execute(query)}


async def detectors(conn: AsyncConnection) -> list[str]:
    """Every detector that has an alert in an incident, in alphabetical order."""
    query = select(alert.c.detector).where(alert.c.incident_id.is_not(None)).distinct().order_by(alert.c.detector)
    return list(await conn.scalars(query))


async def find(conn: AsyncConnection, uid: UUID) -> Incident:
    """One incident. Raises UnknownIncident."""
    found = await _with_alerts(conn, _incidents().where(incident.c.uid == uid))
    if not found:
        raise UnknownIncident(f"There is no incident {uid}.")
    return found[0]


async def known(conn: AsyncConnection, text: str) -> Incident | None:
    """The incident whose uid is written as ``text``, or None."""
    try:
        return await find(conn, UUID(text))
    except (ValueError, UnknownIncident):
        return None


async def _with_alerts(conn: AsyncConnection, query: Select[Any]) -> list[Incident]:
    rows = (await conn.execute(query)).mappings().all()
    began = func.least(alert.c.finding["since_step"].as_integer(), alert.c.opened_step)
    names = ("id", "detector", "organ", "severity", "state", "opened_step", "last_step", "resolved_step", "finding")
    wanted = select(alert.c.incident_id, began.label("began"), *(alert.c[name] for name in names)).order_by(began, alert.c.id)
    members: dict[int, list[Member]] = {row["id"]: [] for row in rows}
    for each in (await conn.execute(wanted.where(alert.c.incident_id.in_(list(members))))).mappings():
        members[each["incident_id"]].append(Member(**{name: each[name] for name in (*names, "began")}))
    found = []
    for row in rows:
        mine = tuple(members[row["id"]])
        found.append(Incident(lead=_title(leading(mine)), alerts=mine, **{name: value for name, value in row.items() if name != "id"}))
    return found


def leading(members: Sequence[Member]) -> Member | None:
    """What causes the rest, of several causes the first mover; None without any."""
    alarms = [member for member in members if is_alarm(member.severity)]
    causes = first_causes([member.detector for member in alarms])
    return next((member for member in alarms if member.detector in causes), members[0] if members else None)


def _title(member: Member | None) -> str:
    return "" if member is None else member.finding.get("title") or member.detector


async def notes(conn: AsyncConnection, uid: UUID) -> list[Note]:
    """What people did about an incident, oldest first."""
    query = select(note.c.at, note.c.author, note.c.kind, note.c.text).join_from(note, incident).where(incident.c.uid == uid).order_by(note.c.id)
    return [Note(*row) for row in await conn.execute(query)]


async def feed(conn: AsyncConnection, after: str = "", limit: int = 200) -> list[Moved]:
    """Transitions after a cursor, each exactly once: those of transactions that may still commit below it are left for later.

    A sequence alone loses what commits out of order; so the order is that of transactions, and the feed ends before the oldest one that is
    still open. Raises BadField for a cursor that is none.
    """
    tx, key = _cursor(after)
    settled = transition.c.tx < text("((pg_snapshot_xmin(pg_current_snapshot()))::text)::bigint")
    query = (
        select(
            transition.c.tx,
            transition.c.id,
            transition.c.uid,
            transition.c.at,
            run.c.uid.label("run"),
            run.c.project,
            alert.c.detector,
            transition.c.from_state,
            transition.c.to_state,
            transition.c.reason,
            transition.c.muted,
            transition.c.step,
            incident.c.uid.label("incident"),
            transition.c.finding["title"].as_string().label("title"),
        )
        .join_from(transition, run)
        .join(alert, alert.c.id == transition.c.alert_id)
        .outerjoin(incident, incident.c.id == alert.c.incident_id)
        .where(settled, (transition.c.tx > tx) | ((transition.c.tx == tx) & (transition.c.id > key)))
        .order_by(transition.c.tx, transition.c.id)
        .limit(limit)
    )
    found = []
    for row in (await conn.execute(query)).mappings():
        facts = {name: value for name, value in row.items() if name not in ("tx", "id", "uid")}
        found.append(Moved(cursor=f"{row['tx']}-{row['id']}", id=row["uid"], **{**facts, "title": row["title"] or row["detector"]}))
    return found


def _cursor(after: str) -> tuple[int, int]:
    if not after:
        return 0, 0
    tx, _, key = after.partition("-")
    if not (tx.isascii() and tx.isdecimal() and key.isascii() and key.isdecimal() and len(after) <= 40):
        raise BadField("after", "must be the cursor of an earlier answer")
    return min(int(tx), 2**63 - 1), min(int(key), 2**63 - 1)


async def acknowledge(conn: AsyncConnection, uid: UUID, author: str, words: str = "") -> Incident:
    """Somebody has taken it on. An incident that is over cannot be. Raises UnknownIncident and BadField."""
    found = await find(conn, uid)
    if found.state == "resolved":
        raise BadField("incident", "is over; there is nothing to acknowledge")
    await conn.execute(update(incident).where(incident.c.uid == uid).values(acknowledged_at=func.now(), acknowledged_by=_name(author)))
    await _write(conn, uid, author, "acknowledge", words)
    return await find(conn, uid)


async def release(conn: AsyncConnection, uid: UUID, author: str, words: str = "") -> Incident:
    """Takes an acknowledgement back: somebody else may take it on. Raises UnknownIncident and BadField."""
    found = await find(conn, uid)
    if found.state != "acknowledged":
        raise BadField("incident", "is not acknowledged")
    await conn.execute(update(incident).where(incident.c.uid == uid).values(acknowledged_at=None, acknowledged_by=None))
    await _write(conn, uid, author, "release", words)
    return await find(conn, uid)


async def comment(conn: AsyncConnection, uid: UUID, author: str, words: str) -> Incident:
    """Raises UnknownIncident and BadField."""
    await find(conn, uid)
    if not words.strip():
        raise BadField("text", "must not be empty")
    await _write(conn, uid, author, "comment", words)
    return await find(conn, uid)


async def mark(conn: AsyncConnection, uid: UUID, author: str, verdict: str | None, words: str = "") -> Incident:
    """Says whether the alarm was ``true`` or ``false``, None takes it back; feeds calibration. Raises UnknownIncident and BadField."""
    await find(conn, uid)
    if verdict is not None and verdict not in MARKS:
        raise BadField("verdict", f"must be one of {', '.join(MARKS)}")
    await conn.execute(update(incident).where(incident.c.uid == uid).values(mark=verdict))
    said = f"{verdict} alarm" if verdict else "neither true nor false"
    await _write(conn, uid, author, "mark", said + (f": {words}" if words else ""))
    return await find(conn, uid)


async def resolve(conn: AsyncConnection, uid: UUID, author: str, words: str = "") -> Incident:
    """Closes an incident by hand, like a judgement: under the run's lock, with transitions and deliveries. Raises UnknownIncident and BadField."""
    found = await find(conn, uid)
    if found.state == "resolved":
        raise BadField("incident", "is over already")
    query = select(*claimed_columns(), func.now().label("now")).join_from(evaluation, run).where(run.c.uid == found.run)
    row = (await conn.execute(query.with_for_update(of=evaluation))).one()
    claimed = read_claim(row)
    about = context(algorithm=claimed.algorithm, signal=claimed.signal, task=claimed.task, aux=claimed.aux, config=claimed.config)
    judged = close(claimed.uid, claimed.state, found.number, about)
    await write(conn, claimed.run_id, [Change(moved, row.now, claimed.seq) for moved in judged.transitions])
    said = {"state": judged.state, "severity": judged.verdict.state, "verdict": dump_verdict(judged.verdict)}
    await conn.execute(update(evaluation).where(evaluation.c.run_id == claimed.run_id).values(**said))
    over = {"state": "resolved", "resolved_at": func.now(), "resolved_step": judged.transitions[-1].step if judged.transitions else None}
    await conn.execute(update(incident).where(incident.c.uid == uid, incident.c.state == "open").values(**over))
    await _write(conn, uid, author, "resolve", words)
    return await find(conn, uid)


async def _write(conn: AsyncConnection, uid: UUID, author: str, kind: str, words: str) -> None:
    mine = select(incident.c.id).where(incident.c.uid == uid).scalar_subquery()
    await conn.execute(insert(note).values(incident_id=mine, author=_name(author), kind=kind, text=_said(words)))


async def add_silence(conn: AsyncConnection, matcher: Mapping[str, str], until: datetime, author: str, reason: str) -> int:
    """Mutes what matches before ``until``; returns the silence's number. Raises BadField."""
    for name, pattern in matcher.items():
        if name not in MATCHABLE:
            raise BadField(f"matcher.{name[:40]}", f"is not known; a silence matches {', '.join(MATCHABLE)}")
        check_text(f"matcher.{name}", pattern)
    if not matcher:
        raise BadField("matcher", "must name something; to mute everything match project *")
    if until <= (await conn.execute(select(func.now()))).scalar_one():
        raise BadField("until", "must be in the future")
    if not reason.strip():
        raise BadField("reason", "must not be empty")
    values = {"matcher": dict(matcher), "until": until, "author": _name(author), "reason": _said(reason)}
    return int((await conn.execute(insert(silence).values(**values).returning(silence.c.id))).scalar_one())


async def silences(conn: AsyncConnection) -> list[dict[str, Any]]:
    """The silences that have not run out."""
    query = select(silence).where(silence.c.until > func.now()).order_by(silence.c.id)
    return [dict(row) for row in (await conn.execute(query)).mappings()]


async def end_silence(conn: AsyncConnection, key: int) -> None:
    """Raises UnknownIncident."""
    if not -(2**63) <= key < 2**63 or not (await conn.execute(delete(silence).where(silence.c.id == key))).rowcount:
        raise UnknownIncident(f"There is no silence {key}.")


def _name(author: str) -> str:
    return check_text("author", author.strip() or "somebody")


def _said(words: str) -> str:
    if len(words) > MAX_TEXT:
        raise BadField("text", f"has {len(words):,} characters; at most {MAX_TEXT:,} are kept")
    return clean(words)
