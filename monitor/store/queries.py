"""What pages and the read API ask of the database: frozen values out, nothing written.

Every function takes a connection and plain arguments. Series of metrics are in :mod:`monitor.store.series`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Row, Select, and_, case, func, literal, or_, select, text, true, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from monitor.alerts.book import is_alarm
from monitor.alerts.incident import held_by
from monitor.store.tables import (
    alert,
    channel,
    delivery,
    evaluation,
    event,
    incident,
    note,
    point,
    request,
    rollout,
    run,
    segment,
    silence,
    transition,
)

Database = AsyncEngine
Connection = AsyncConnection
"""What pages hold to open connections, and what that gives, for rooms that may not know the driver."""

SEVERITY_ORDER = ("critical", "warning", "watch", "cannot judge", "unknown", "solved", "healthy")
"""Most urgent first: the order of a fleet that nobody sorted."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One attempt of a run and the first step it reported."""

    segment: int
    attempt: str
    started_at: datetime
    first_step: int | None


@dataclass(frozen=True, slots=True)
class RunView:
    """A run as pages show it. ``speed`` is steps per second over the last rows, None where they span under a second; times are zone-aware UTC."""

    id: int
    uid: str
    project: str
    name: str
    algorithm: str | None
    signal: str
    task_reward: str | None
    aux_rewards: tuple[str, ...]
    tags: tuple[str, ...]
    label: str | None
    state: str
    end_reason: str | None
    created_at: datetime
    last_seen_at: datetime
    finished_at: datetime | None
    last_step: int | None
    seq: int
    severity: str
    verdict: dict[str, Any]
    judged_at: datetime | None
    judged_seq: int
    critical: int
    warning: int
    speed: float | None
    config: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    accepts: tuple[str, ...] = ()
    outcome: str | None = None
    shown: str = ""
    """What it is called where it stands among others: :data:`shown_name`."""


@dataclass(frozen=True, slots=True)
class Pulse:
    """What a poll needs to know of a run. ``seq`` is its last accepted sequence."""

    id: int
    uid: str
    state: str
    last_seen_at: datetime
    first_step: int | None
    last_step: int | None
    seq: int
    severity: str
    judged_at: datetime | None


@dataclass(frozen=True, slots=True)
class FleetFilter:
    """Which runs: ``text`` matches name, project, algorithm, uid or a tag; empty fields do not filter. ``changed_since`` is Unix seconds."""

    text: str = ""
    project: str = ""
    tag: str = ""
    state: str = ""
    severity: str = ""
    changed_since: float | None = None
    limit: int = 500


@dataclass(frozen=True, slots=True)
class Told:
    """One delivery of one transition (to ``to_state`` at ``step``): to which channel, in which state, after how many attempts."""

    channel: str
    state: str
    attempts: int
    sent_at: datetime | None
    error: str | None
    to_state: str
    step: int


@dataclass(frozen=True, slots=True)
class Change:
    """A transition of an alert, with its reason, why nobody was told, and what the run was asked to do because of it."""

    step: int
    at: datetime
    from_state: str
    to_state: str
    reason: str
    muted: str | None = None
    acted: str | None = None


@dataclass(frozen=True, slots=True)
class AlertView:
    """One episode of one detector on one run, its history and who was told."""

    id: int
    run: str
    run_name: str
    project: str
    detector: str
    organ: str
    severity: str
    state: str
    opened_step: int
    opened_at: datetime
    last_step: int
    resolved_step: int | None
    resolved_at: datetime | None
    finding: dict[str, Any]
    told: tuple[Told, ...] = ()
    changes: tuple[Change, ...] = ()
    incident: UUID | None = None

    @property
    def open(self) -> bool:
        return self.resolved_at is None

    @property
    def held_by(self) -> str:
        """The detector that explained this one when it last was an alarm, so that nobody was told; empty if none did."""
        return next((held_by(change.muted) for change in reversed(self.changes) if is_alarm(change.to_state)), "")


@dataclass(frozen=True, slots=True)
class EventView:
    """Something that happened to a run; ``step`` is None where it belongs to no step."""

    seq: int
    segment: int
    step: int | None
    at: datetime
    kind: str
    detail: dict[str, Any]


@dataclass(frozen=True, slots=True)
class RolloutView:
    """One decoded sample: ``turns`` are ``{"role", "text"}``, ``rewards`` by component, ``shortened`` characters were cut."""

    segment: int
    step: int
    ordinal: int
    pick: str
    group: str | None
    truncated: bool
    advantage: float | None
    rewards: dict[str, Any]
    turns: list[dict[str, str]]
    shortened: int


_named = func.coalesce(run.c.label, run.c.name)
_others = run.alias("others")
_of_others = (_others.c.project, func.coalesce(_others.c.label, _others.c.name))
_taken = select(*_of_others).group_by(*_of_others).having(func.count() > 1)
_short_id = case((func.length(run.c.uid) == 32, func.left(run.c.uid, 6)), else_=run.c.uid)
shown_name = case((tuple_(run.c.project, _named).in_(_taken), _named + literal(" · ") + _short_id), else_=_named)
"""A run's label or name; with its id behind it, shortened where it is one of ours, where another run of the project is called the same."""

_OPEN = alert.c.resolved_at.is_(None)

_open_alerts = (
    select(
        alert.c.run_id,
        func.count().filter(alert.c.severity == "critical").label("critical"),
        func.count().filter(alert.c.severity == "warning").label("warning"),
    )
    .where(_OPEN)
    .group_by(alert.c.run_id)
    .subquery()
)

_recent = select(point.c.step, point.c.at).where(point.c.run_id == run.c.id).order_by(point.c.seq.desc()).limit(30).correlate(run).subquery()
_span = func.extract("epoch", func.max(_recent.c.at) - func.min(_recent.c.at))
_pace = select(case((_span >= 1, (func.max(_recent.c.step) - func.min(_recent.c.step)) / _span)).label("speed")).correlate(run).lateral("pace")
_seen = func.greatest(run.c.last_seen_at, evaluation.c.updated_at)
_severity = func.coalesce(evaluation.c.severity, "unknown")
_urgency = case({name: place for place, name in enumerate(SEVERITY_ORDER)}, value=_severity, else_=len(SEVERITY_ORDER))


def _runs(*, detail: bool) -> Select[Any]:
    extra = [run.c.config, run.c.environment, run.c.dropped, run.c.accepts] if detail else []
    return (
        select(
            run.c.id,
            run.c.uid,
            run.c.project,
            run.c.name,
            run.c.algorithm,
            run.c.signal,
            run.c.task_reward,
            run.c.aux_rewards,
            run.c.tags,
            run.c.label,
            run.c.outcome,
            shown_name.label("shown"),
            run.c.state,
            run.c.end_reason,
            run.c.created_at,
            run.c.last_seen_at,
            run.c.finished_at,
            run.c.last_step,
            (run.c.next_seq - 1).label("seq"),
            _severity.label("severity"),
            func.coalesce(evaluation.c.verdict, text("'{}'::jsonb")).label("verdict"),
            evaluation.c.updated_at.label("judged_at"),
            func.coalesce(evaluation.c.seq, 0).label("judged_seq"),
            func.coalesce(_open_alerts.c.critical, 0).label("critical"),
            func.coalesce(_open_alerts.c.warning, 0).label("warning"),
            _pace.c.speed,
            *extra,
        )
        .select_from(run)
        .outerjoin(evaluation, evaluation.c.run_id == run.c.id)
        .outerjoin(_open_alerts, _open_alerts.c.run_id == run.c.id)
        .outerjoin(_pace, true())
    )


def _run_view(row: Row[Any]) -> RunView:
    values = dict(row._mapping)
    values["aux_rewards"] = tuple(values["aux_rewards"])
    values["tags"] = tuple(values["tags"])
    values["accepts"] = tuple(values.get("accepts", ()))
    values["speed"] = None if values["speed"] is None else float(values["speed"])
    return RunView(**values)


def _conditions(wanted: FleetFilter) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    for word in wanted.text.split():
        like = "%" + word.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
        found.append(
            or_(
                run.c.name.ilike(like),
                run.c.project.ilike(like),
                run.c.algorithm.ilike(like),
                run.c.uid.ilike(like),
                func.array_to_string(run.c.tags, " ").ilike(like),
            )
        )
    if wanted.project:
        found.append(run.c.project == wanted.project)
    if wanted.tag:
        found.append(run.c.tags.contains([wanted.tag]))
    if wanted.state:
        found.append(run.c.state == wanted.state if wanted.state != "ended" else run.c.state != "running")
    if wanted.severity:
        found.append(_severity == wanted.severity)
    if wanted.changed_since is not None:
        found.append(_seen >= func.to_timestamp(wanted.changed_since))
    return found


async def fleet(conn: AsyncConnection, wanted: FleetFilter = FleetFilter()) -> list[RunView]:
    """Runs without their configuration, the most urgent first, then the most recently seen."""
    query = _runs(detail=False).where(*_conditions(wanted)).order_by(_urgency, run.c.last_seen_at.desc(), run.c.id.desc()).limit(wanted.limit)
    return [_run_view(row) for row in await conn.execute(query)]


async def count_runs(conn: AsyncConnection, wanted: FleetFilter = FleetFilter()) -> int:
    """How many runs the filter matches, whatever its limit."""
    query = select(func.count()).select_from(run).outerjoin(evaluation, evaluation.c.run_id == run.c.id).where(*_conditions(wanted))
    return (await conn.execute(query)).scalar_one()


async def projects(conn: AsyncConnection) -> list[str]:
    """Every project name, in alphabetical order."""
    return list((await conn.execute(select(run.c.project).distinct().order_by(run.c.project))).scalars())


async def find_run(conn: AsyncConnection, uid: str) -> RunView | None:
    """The run named ``uid`` with its configuration, or None."""
    row = (await conn.execute(_runs(detail=True).where(run.c.uid == uid))).one_or_none()
    return None if row is None else _run_view(row)


async def find_runs(conn: AsyncConnection, uids: Sequence[str]) -> list[RunView]:
    """The runs named in ``uids`` that exist, with their configuration, in the order of ``uids``."""
    found = {row.uid: _run_view(row) for row in await conn.execute(_runs(detail=True).where(run.c.uid.in_(uids)))}
    return [found[uid] for uid in dict.fromkeys(uids) if uid in found]


_PULSES = text("""
    SELECT run.id, run.uid, run.state, run.last_seen_at, (SELECT min(first_step) FROM segment WHERE run_id = run.id), run.last_step,
        run.next_seq - 1, coalesce(evaluation.severity, 'unknown'), evaluation.updated_at
    FROM run LEFT JOIN evaluation ON evaluation.run_id = run.id WHERE run.uid = ANY(CAST(:uids AS text[]))
""")
"""Text, because every open page asks it: building an expression costs more than running it."""


async def pulses(conn: AsyncConnection, uids: Sequence[str]) -> list[Pulse]:
    """The runs named in ``uids`` that exist, in the order of ``uids``."""
    found = {row.uid: Pulse(*row) for row in await conn.execute(_PULSES, {"uids": list(uids)})}
    return [found[uid] for uid in dict.fromkeys(uids) if uid in found]


async def open_requests(conn: AsyncConnection, run_id: int) -> list[str]:
    """What the run was asked for and has not done yet, oldest first."""
    query = select(request.c.kind).where(request.c.run_id == run_id, request.c.done_at.is_(None)).order_by(request.c.id)
    return list(await conn.scalars(query))


async def segments(conn: AsyncConnection, run_id: int) -> list[Segment]:
    """The run's attempts, oldest first."""
    query = (
        select(segment.c.segment, segment.c.attempt, segment.c.started_at, segment.c.first_step)
        .where(segment.c.run_id == run_id)
        .order_by(segment.c.segment)
    )
    return [Segment(*row) for row in await conn.execute(query)]


async def alerts(
    conn: AsyncConnection,
    *,
    run_uid: str | None = None,
    state: str = "",
    severity: str = "",
    words: str = "",
    alert_id: int | None = None,
    incident_uid: UUID | None = None,
    limit: int = 200,
) -> list[AlertView]:
    """Alerts with their history and deliveries: open ones first, then the newest. ``state`` is ``open``, ``resolved`` or empty."""
    query = (
        select(
            alert.c.id,
            run.c.uid.label("run"),
            shown_name.label("run_name"),
            run.c.project,
            alert.c.detector,
            alert.c.organ,
            alert.c.severity,
            alert.c.state,
            alert.c.opened_step,
            alert.c.opened_at,
            alert.c.last_step,
            alert.c.resolved_step,
            alert.c.resolved_at,
            alert.c.finding,
            incident.c.uid.label("incident"),
        )
        .join_from(alert, run, run.c.id == alert.c.run_id)
        .outerjoin(incident, incident.c.id == alert.c.incident_id)
        .order_by(alert.c.resolved_at.is_not(None), alert.c.opened_at.desc(), alert.c.id.desc())
        .limit(limit)
    )
    if run_uid is not None:
        query = query.where(run.c.uid == run_uid)
    if alert_id is not None:
        query = query.where(alert.c.id == alert_id)
    if incident_uid is not None:
        query = query.where(incident.c.uid == incident_uid)
    if state:
        query = query.where(_OPEN if state == "open" else alert.c.resolved_at.is_not(None))
    if severity:
        query = query.where(alert.c.severity == severity)
    for word in words.split():
        query = query.where(
            or_(
                run.c.name.icontains(word, autoescape=True),
                run.c.project.icontains(word, autoescape=True),
                alert.c.detector.icontains(word, autoescape=True),
            )
        )
    found = list(await conn.execute(query))
    ids = [row.id for row in found]
    told: dict[int, list[Told]] = {}
    changes: dict[int, list[Change]] = {}
    if ids:
        history = select(
            transition.c.alert_id,
            transition.c.step,
            transition.c.at,
            transition.c.from_state,
            transition.c.to_state,
            transition.c.reason,
            transition.c.muted,
            transition.c.acted,
        )
        for row in await conn.execute(history.where(transition.c.alert_id.in_(ids)).order_by(transition.c.id)):
            changes.setdefault(row.alert_id, []).append(Change(*tuple(row)[1:]))
        sent = (
            select(
                transition.c.alert_id,
                delivery.c.channel,
                delivery.c.state,
                delivery.c.attempts,
                delivery.c.sent_at,
                delivery.c.last_error,
                transition.c.to_state,
                transition.c.step,
            )
            .join(transition, transition.c.id == delivery.c.transition_id)
            .where(transition.c.alert_id.in_(ids))
            .order_by(delivery.c.id)
        )
        for sent_row in await conn.execute(sent):
            told.setdefault(sent_row.alert_id, []).append(Told(*tuple(sent_row)[1:]))
    return [AlertView(**row._mapping, told=tuple(told.get(row.id, ())), changes=tuple(changes.get(row.id, ()))) for row in found]


async def count_open_alerts(conn: AsyncConnection) -> dict[str, int]:
    """Open alerts by severity, over every run."""
    query = select(alert.c.severity, func.count()).where(_OPEN).group_by(alert.c.severity)
    return {row[0]: row[1] for row in await conn.execute(query)}


async def alert_stamp(conn: AsyncConnection) -> str:
    """A text that changes whenever an alert changed, a delivery was tried, or somebody did something about an incident."""
    newest = select(func.max(transition.c.id)).scalar_subquery()
    said = select(func.max(note.c.id)).scalar_subquery()
    muted = select(func.sum(silence.c.id)).where(silence.c.until > func.now()).scalar_subquery()
    tried = select(func.extract("epoch", func.max(func.greatest(channel.c.last_ok_at, channel.c.last_error_at)))).scalar_subquery()
    return ".".join(str(part) for part in (await conn.execute(select(newest, said, muted, tried))).one())


async def events(conn: AsyncConnection, run_id: int, *, after: int = 0, kind: str = "", limit: int = 500) -> list[EventView]:
    """The run's newest events with a sequence above ``after``, of one ``kind`` if given, in the order they were accepted."""
    query = (
        select(event.c.seq, event.c.segment, event.c.step, event.c.at, event.c.kind, event.c.detail)
        .where(event.c.run_id == run_id, event.c.seq > after, event.c.kind == kind if kind else true())
        .order_by(event.c.seq.desc())
        .limit(limit)
    )
    return [EventView(*row) for row in await conn.execute(query)][::-1]


async def rollout_steps(conn: AsyncConnection, run_id: int) -> list[int]:
    """Every step that has decoded samples, in rising order."""
    return list((await conn.execute(select(rollout.c.step).where(rollout.c.run_id == run_id).distinct().order_by(rollout.c.step))).scalars())


async def rollouts(conn: AsyncConnection, run_id: int, step: int) -> list[RolloutView]:
    """The samples of the step's newest attempt, in the order they were sent."""
    newest = select(func.max(rollout.c.segment)).where(rollout.c.run_id == run_id, rollout.c.step == step).scalar_subquery()
    query = (
        select(
            rollout.c.segment,
            rollout.c.step,
            rollout.c.ordinal,
            rollout.c.pick,
            rollout.c.group_key,
            rollout.c.truncated,
            rollout.c.advantage,
            rollout.c.rewards,
            rollout.c.turns,
            rollout.c.shortened,
        )
        .where(and_(rollout.c.run_id == run_id, rollout.c.step == step, rollout.c.segment == newest))
        .order_by(rollout.c.ordinal)
    )
    return [RolloutView(*tuple(row)) for row in await conn.execute(query)]
