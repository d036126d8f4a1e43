"""Every table. Migrations in ``migrations/versions`` build the same schema; a test compares the two.

Each key begins with the run, so that the schema can be distributed by run. Ingest locks ``run`` rows, evaluation locks ``evaluation`` rows:
neither waits for the other.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    REAL,
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

_now = text("now()")


def _time(name: str, *, nullable: bool = False, default: bool = False) -> Column[Any]:
    return Column(name, DateTime(timezone=True), nullable=nullable, server_default=_now if default else None)


def _run_key() -> Column[Any]:
    return Column("run_id", Integer, ForeignKey("run.id", ondelete="CASCADE"), nullable=False)


run = Table(
    "run",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("uid", Text, nullable=False, unique=True),
    Column("project", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("algorithm", Text),
    Column("signal", Text, nullable=False, server_default="reward"),
    Column("task_reward", Text),
    Column("aux_rewards", ARRAY(Text), nullable=False, server_default="{}"),
    Column("config", JSONB, nullable=False, server_default="{}"),
    Column("environment", JSONB, nullable=False, server_default="{}"),
    Column("tags", ARRAY(Text), nullable=False, server_default="{}"),
    Column("accepts", ARRAY(Text), nullable=False, server_default="{}"),
    Column("label", Text),
    Column("state", Text, nullable=False, server_default="running"),
    Column("end_reason", Text),
    _time("created_at", default=True),
    _time("last_seen_at", default=True),
    _time("finished_at", nullable=True),
    Column("last_step", BigInteger),
    Column("next_seq", BigInteger, nullable=False, server_default="1"),
    Column("dropped", JSONB, nullable=False, server_default="{}"),
    Column("outcome", Text),
    Column("late", Boolean, nullable=False, server_default=text("false")),
    Column("watched", Boolean, nullable=False, server_default=text("true")),
    Index(None, "project", "created_at"),
    Index("ix_run_watched", "id", postgresql_where=text("watched")),
)
"""``outcome`` is what a person says the run came to (``monitor.wire.OUTCOMES``).
``next_seq`` is the sequence that the run's next accepted row or event takes; it counts per run and never skips.
``late``: its latest rows arrived long after they were logged.
``watched``: a worker has to look at it; not any more once its end, or its last silence, was judged, until something comes again."""

segment = Table(
    "segment",
    metadata,
    _run_key(),
    Column("segment", SmallInteger, nullable=False),
    Column("attempt", Text, nullable=False),
    _time("started_at", default=True),
    _time("opened_at", default=True),
    Column("first_step", BigInteger),
    Column("dropped", JSONB, nullable=False, server_default="{}"),
    PrimaryKeyConstraint("run_id", "segment"),
    UniqueConstraint("run_id", "attempt"),
)
"""One attempt (process) of a run. For each step the highest segment that holds it is the effective one. ``started_at`` is what its
clock said, ``opened_at`` when the collector heard of it. ``dropped`` is what its client last reported as shed since the attempt began;
``run.dropped`` is their sum."""

metric_set = Table(
    "metric_set",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("sha", LargeBinary, nullable=False, unique=True),
    Column("names", ARRAY(Text), nullable=False),
)
"""An ordered set of metric names that rows share; ``sha`` is the SHA-256 of the names joined by newlines."""

point = Table(
    "point",
    metadata,
    _run_key(),
    Column("segment", SmallInteger, nullable=False),
    Column("step", BigInteger, nullable=False),
    Column("set_id", Integer, ForeignKey("metric_set.id"), nullable=False),
    Column("seq", BigInteger, nullable=False),
    _time("at"),
    Column("vals", ARRAY(Float(53)), nullable=False),
    PrimaryKeyConstraint("run_id", "segment", "step", "set_id"),
    UniqueConstraint("run_id", "seq"),
)
"""One accepted row: values in the order of its metric set; NULL is absent, NaN and infinity are values."""

rollup = Table(
    "rollup",
    metadata,
    _run_key(),
    Column("set_id", Integer, ForeignKey("metric_set.id"), nullable=False),
    Column("segment", SmallInteger, nullable=False),
    Column("level", SmallInteger, nullable=False),
    Column("bucket", BigInteger, nullable=False),
    Column("n", ARRAY(Integer), nullable=False),
    Column("bad", ARRAY(Integer), nullable=False),
    Column("mn", ARRAY(REAL), nullable=False),
    Column("mx", ARRAY(REAL), nullable=False),
    Column("mean", ARRAY(Float(53)), nullable=False),
    PrimaryKeyConstraint("run_id", "set_id", "segment", "level", "bucket"),
)
"""Per bucket of ``8**level`` steps: how many finite and non-finite values, and the finite ones' minimum, maximum and mean."""

hist = Table(
    "hist",
    metadata,
    _run_key(),
    Column("segment", SmallInteger, nullable=False),
    Column("metric", Text, nullable=False),
    Column("level", SmallInteger, nullable=False, server_default="0"),
    Column("bucket", BigInteger, nullable=False),
    Column("counts", ARRAY(BigInteger), nullable=False),
    PrimaryKeyConstraint("run_id", "metric", "segment", "level", "bucket"),
)
"""Histogram counts over the fixed bins of the catalogue; level 0 buckets are steps, level k buckets sum ``8**k`` steps."""

rollup_cursor = Table(
    "rollup_cursor",
    metadata,
    Column("run_id", Integer, ForeignKey("run.id", ondelete="CASCADE"), primary_key=True),
    Column("seq", BigInteger, nullable=False, server_default="0"),
)
"""How far a run's rows are in its rollups."""

rollout = Table(
    "rollout",
    metadata,
    _run_key(),
    Column("segment", SmallInteger, nullable=False),
    Column("step", BigInteger, nullable=False),
    Column("ordinal", Integer, nullable=False),
    Column("pick", Text, nullable=False),
    Column("group_key", Text),
    Column("truncated", Boolean, nullable=False, server_default=text("false")),
    Column("advantage", Float(53)),
    Column("rewards", JSONB, nullable=False, server_default="{}"),
    Column("turns", JSONB, nullable=False),
    Column("shortened", Integer, nullable=False, server_default="0"),
    PrimaryKeyConstraint("run_id", "segment", "step", "ordinal"),
)
"""A decoded sample; ``shortened`` counts the characters that the size cap removed."""

event = Table(
    "event",
    metadata,
    _run_key(),
    Column("seq", BigInteger, nullable=False),
    Column("segment", SmallInteger, nullable=False),
    Column("step", BigInteger),
    _time("at"),
    Column("kind", Text, nullable=False),
    Column("detail", JSONB, nullable=False, server_default="{}"),
    PrimaryKeyConstraint("run_id", "seq"),
    Index(None, "run_id", "at"),
)

request = Table(
    "request",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    _run_key(),
    Column("kind", Text, nullable=False),
    _time("at", default=True),
    _time("done_at", nullable=True),
    Index(None, "run_id", "done_at"),
)
"""What a person asked of a run (``monitor.wire.REQUESTS``); open until the run reports it done."""

evaluation = Table(
    "evaluation",
    metadata,
    Column("run_id", Integer, ForeignKey("run.id", ondelete="CASCADE"), primary_key=True),
    Column("seq", BigInteger, nullable=False, server_default="0"),
    Column("rows", BigInteger, nullable=False, server_default="0"),
    Column("state", JSONB, nullable=False, server_default="{}"),
    Column("severity", Text, nullable=False, server_default="unknown"),
    Column("verdict", JSONB, nullable=False, server_default="{}"),
    Column("failures", Integer, nullable=False, server_default="0"),
    Column("seconds", Float(53), nullable=False, server_default="0"),
    _time("retry_at", nullable=True),
    _time("deadline_at", nullable=True),
    _time("ended_at", nullable=True),
    _time("updated_at", default=True),
)
"""How far a run has been judged: ``seq`` is the cursor, ``state`` the folded detectors and the alert book, ``verdict`` what a page shows.

``severity`` is the verdict's state (``monitor.alerts.verdict.STATES``, or ``unknown`` before the first row) and ``seconds`` the time that
judging took so far. After ``failures`` in a row the run is left alone until ``retry_at``. A run that is still silent at ``deadline_at`` has
stalled (infinity: it is paused); ``ended_at`` is the end of the run (``run.finished_at``) that has been judged.
"""

incident = Table(
    "incident",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("uid", Uuid, nullable=False, unique=True),
    _run_key(),
    Column("number", Integer, nullable=False),
    Column("severity", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("opened_step", BigInteger, nullable=False),
    _time("opened_at"),
    Column("resolved_step", BigInteger),
    _time("resolved_at", nullable=True),
    _time("acknowledged_at", nullable=True),
    Column("acknowledged_by", Text),
    Column("mark", Text),
    UniqueConstraint("run_id", "number"),
    Index(None, "state", "opened_at"),
)
"""Alarms of one run that are one story. ``state`` is ``open`` or ``resolved``, ``severity`` the highest so far; ``mark`` is what a person said
afterwards: ``true`` alarm or ``false`` alarm."""

note = Table(
    "note",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("incident_id", BigInteger, ForeignKey("incident.id", ondelete="CASCADE"), nullable=False),
    _time("at", default=True),
    Column("author", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("text", Text, nullable=False, server_default=""),
    Index(None, "incident_id"),
)
"""What people did about an incident: ``kind`` is ``comment``, ``acknowledge``, ``release``, ``resolve`` or ``mark``."""

silence = Table(
    "silence",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("matcher", JSONB, nullable=False),
    Column("reason", Text, nullable=False),
    Column("author", Text, nullable=False),
    _time("created_at", default=True),
    _time("until"),
)
"""Nobody is told of alarms that match before ``until``. ``matcher`` maps project, run, detector, organ or tag to a pattern."""

beat = Table(
    "beat",
    metadata,
    Column("component", Text, primary_key=True),
    _time("at"),
)
"""When a component of ours was last alive."""

blind = Table(
    "blind",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("component", Text, nullable=False),
    _time("from_at"),
    _time("to_at"),
    Index(None, "to_at"),
)
"""When a component of ours was down: silence then says nothing about a run."""

alert = Table(
    "alert",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("uid", Uuid, nullable=False, unique=True),
    _run_key(),
    Column("incident_id", BigInteger, ForeignKey("incident.id", ondelete="SET NULL")),
    Column("detector", Text, nullable=False),
    Column("organ", Text, nullable=False),
    Column("severity", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("opened_step", BigInteger, nullable=False),
    _time("opened_at"),
    Column("last_step", BigInteger, nullable=False),
    Column("resolved_step", BigInteger),
    _time("resolved_at", nullable=True),
    Column("finding", JSONB, nullable=False),
    Index(None, "run_id", "state"),
    Index(None, "incident_id"),
    Index(None, "opened_at"),
)
"""One episode of one detector on one run, from its opening to its resolution.

``state`` is ``open`` or ``resolved``; ``severity`` is the present one while it is open, then the highest it reached.
"""

transition = Table(
    "transition",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("uid", Uuid, nullable=False, unique=True),
    Column("alert_id", BigInteger, ForeignKey("alert.id", ondelete="CASCADE"), nullable=False),
    _run_key(),
    Column("seq", BigInteger, nullable=False),
    Column("step", BigInteger, nullable=False),
    Column("from_state", Text, nullable=False),
    Column("to_state", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("muted", Text),
    Column("acted", Text),
    Column("finding", JSONB, nullable=False),
    _time("at", default=True),
    Column("tx", BigInteger, nullable=False, server_default=text("((pg_current_xact_id())::text)::bigint")),
    Index(None, "alert_id"),
    Index(None, "run_id", "id"),
    Index(None, "tx", "id"),
)
"""Every change of an alert, with its reason: the outbox. ``uid`` is what receivers deduplicate by; ``muted`` says why nobody was told, ``acted``
what its run was asked because of it, and ``tx`` in which transaction it was written, so that a reader of the feed can stop before those that may
still commit."""

delivery = Table(
    "delivery",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("transition_id", BigInteger, ForeignKey("transition.id", ondelete="CASCADE"), nullable=False),
    Column("channel", Text, nullable=False),
    Column("state", Text, nullable=False, server_default="pending"),
    Column("attempts", Integer, nullable=False, server_default="0"),
    _time("due_at", default=True),
    _time("leased_until", nullable=True),
    _time("sent_at", nullable=True),
    Column("last_error", Text),
    Column("digest_s", Float(53)),
    Column("digest_id", BigInteger, ForeignKey("digest.id", ondelete="SET NULL")),
    Column("repeats", Integer, nullable=False, server_default="0"),
    UniqueConstraint("transition_id", "channel"),
    Index(None, "state", "due_at"),
    Index(None, "digest_id"),
)
"""One transition for one channel. ``state`` is ``pending``, ``sent`` or ``refused`` (the receiver will never take this message).

One with ``digest_s`` waits for the digest that its route sends every so many seconds; ``digest_id`` is the digest that stands for it instead of
a message of its own.
``repeats`` counts how often it was sent again because nobody had acknowledged it.
"""

digest = Table(
    "digest",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("uid", Uuid, nullable=False, unique=True),
    Column("channel", Text, nullable=False),
    Column("collected", Boolean, nullable=False),
    _time("at", default=True),
)
"""One message for many deliveries of a channel: those that point to it. Its members never change, so that a retry says the same."""

thread = Table(
    "thread",
    metadata,
    _run_key(),
    Column("channel", Text, nullable=False),
    Column("story", Uuid, nullable=False),
    Column("reference", JSONB, nullable=False),
    _time("at", default=True),
    PrimaryKeyConstraint("run_id", "channel", "story"),
)
"""Where a channel keeps the messages of one story together: what it gave back for the first of them."""

delivery_attempt = Table(
    "delivery_attempt",
    metadata,
    Column("delivery_id", BigInteger, nullable=False),
    Column("attempt", Integer, nullable=False),
    _time("at", default=True),
    Column("outcome", Text, nullable=False),
    Column("status", Integer),
    Column("latency_ms", Float(53)),
    Column("error", Text),
    PrimaryKeyConstraint("delivery_id", "attempt"),
    ForeignKeyConstraint(["delivery_id"], ["delivery.id"], ondelete="CASCADE"),
    Index(None, "at"),
)
"""One attempt: ``outcome`` is ``sending``, ``delivered``, ``failed`` or ``refused``; one that stays ``sending`` died with its worker."""

channel = Table(
    "channel",
    metadata,
    Column("name", Text, primary_key=True),
    Column("state", Text, nullable=False, server_default="ok"),
    Column("failures", Integer, nullable=False, server_default="0"),
    _time("rest_until", nullable=True),
    _time("probe_until", nullable=True),
    _time("last_ok_at", nullable=True),
    _time("last_error_at", nullable=True),
    Column("last_error", Text),
    _time("next_at", nullable=True),
)
"""The health of a receiver, shared by all workers. ``state`` is ``ok``, ``resting`` (after ``failures`` in a row) or ``disabled`` (the receiver
says that its address or our secret is wrong). Nothing is sent before ``rest_until``, nor to a failing one while a probe is out, nor to one that
takes messages only so fast before ``next_at``."""
