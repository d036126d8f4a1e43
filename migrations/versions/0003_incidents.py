"""incidents, notes, silences, and what tells a silent run from a blind collector

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def _time(name: str, nullable: bool = False, now: bool = False) -> sa.Column:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=nullable, server_default=sa.text("now()") if now else None)


def upgrade() -> None:
    # A migration that waits for a lock makes every later query wait behind it: give up instead and try again.
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.create_table(
        "incident",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("uid", sa.Uuid(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("severity", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("opened_step", sa.BigInteger(), nullable=False),
        _time("opened_at"),
        sa.Column("resolved_step", sa.BigInteger(), nullable=True),
        _time("resolved_at", nullable=True),
        _time("acknowledged_at", nullable=True),
        sa.Column("acknowledged_by", sa.Text(), nullable=True),
        sa.Column("mark", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_incident_run_id_run"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_incident")),
        sa.UniqueConstraint("uid", name=op.f("uq_incident_uid")),
        sa.UniqueConstraint("run_id", "number", name=op.f("uq_incident_run_id_number")),
    )
    op.create_index(op.f("ix_incident_state_opened_at"), "incident", ["state", "opened_at"])
    op.create_table(
        "note",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("incident_id", sa.BigInteger(), nullable=False),
        _time("at", now=True),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), server_default="", nullable=False),
        sa.ForeignKeyConstraint(["incident_id"], ["incident.id"], name=op.f("fk_note_incident_id_incident"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_note")),
    )
    op.create_index(op.f("ix_note_incident_id"), "note", ["incident_id"])
    op.create_table(
        "silence",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("matcher", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        _time("created_at", now=True),
        _time("until"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_silence")),
    )
    op.create_table(
        "beat", sa.Column("component", sa.Text(), nullable=False), _time("at"), sa.PrimaryKeyConstraint("component", name=op.f("pk_beat"))
    )
    op.create_table(
        "blind",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("component", sa.Text(), nullable=False),
        _time("from_at"),
        _time("to_at"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_blind")),
    )
    op.create_index(op.f("ix_blind_to_at"), "blind", ["to_at"])
    op.add_column("alert", sa.Column("incident_id", sa.BigInteger(), nullable=True))
    op.create_foreign_key(op.f("fk_alert_incident_id_incident"), "alert", "incident", ["incident_id"], ["id"], ondelete="SET NULL")
    op.create_index(op.f("ix_alert_incident_id"), "alert", ["incident_id"])
    op.add_column("transition", sa.Column("muted", sa.Text(), nullable=True))
    op.add_column("evaluation", _time("deadline_at", nullable=True))
    op.add_column("evaluation", _time("ended_at", nullable=True))
    op.create_index(op.f("ix_evaluation_deadline_at"), "evaluation", ["deadline_at"])


def downgrade() -> None:
    op.drop_column("evaluation", "ended_at")
    op.drop_column("evaluation", "deadline_at")
    op.drop_column("transition", "muted")
    op.drop_column("alert", "incident_id")
    for table in ("blind", "beat", "silence", "note", "incident"):
        op.drop_table(table)
