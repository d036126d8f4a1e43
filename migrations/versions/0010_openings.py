"""when the collector heard of an attempt, so that one that never sends a row is missed

Revision ID: 0010
Revises: 0009
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # A migration that waits for a lock makes every later query wait behind it: give up instead and try again.
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.add_column("segment", sa.Column("opened_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False))
    op.execute("UPDATE segment SET opened_at = started_at")
    # What was opened before and never sent a row is no news.
    op.execute("UPDATE run SET watched = false WHERE state = 'running' AND next_seq = 1")


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_column("segment", "opened_at")
