"""transitions as a feed that loses nothing

Revision ID: 0004
Revises: 0003
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # A migration that waits for a lock makes every later query wait behind it: give up instead and try again.
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.add_column("transition", sa.Column("tx", sa.BigInteger(), server_default=sa.text("((pg_current_xact_id())::text)::bigint"), nullable=False))
    op.create_index(op.f("ix_transition_tx_id"), "transition", ["tx", "id"])


def downgrade() -> None:
    op.drop_column("transition", "tx")
