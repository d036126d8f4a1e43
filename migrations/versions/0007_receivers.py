"""digests, threads, repetitions and the pace of receivers

Revision ID: 0007
Revises: 0006
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # A migration that waits for a lock makes every later query wait behind it: give up instead and try again.
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.create_table(
        "digest",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("uid", sa.Uuid(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("collected", sa.Boolean(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_digest")),
        sa.UniqueConstraint("uid", name=op.f("uq_digest_uid")),
    )
    op.create_table(
        "thread",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("story", sa.Uuid(), nullable=False),
        sa.Column("reference", postgresql.JSONB(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_thread_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "channel", "story", name=op.f("pk_thread")),
    )
    op.add_column("channel", sa.Column("next_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("delivery", sa.Column("collected", sa.Boolean(), server_default=sa.text("false"), nullable=False))
    op.add_column("delivery", sa.Column("digest_id", sa.BigInteger(), nullable=True))
    op.add_column("delivery", sa.Column("repeats", sa.Integer(), server_default="0", nullable=False))
    op.create_foreign_key(op.f("fk_delivery_digest_id"), "delivery", "digest", ["digest_id"], ["id"], ondelete="SET NULL")
    op.create_index(op.f("ix_delivery_digest_id"), "delivery", ["digest_id"])


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_index(op.f("ix_delivery_digest_id"), table_name="delivery")
    for column in ("repeats", "digest_id", "collected"):
        op.drop_column("delivery", column)
    op.drop_column("channel", "next_at")
    op.drop_table("thread")
    op.drop_table("digest")
