"""what was asked of a run because of an alarm

Revision ID: 0011
Revises: 0010
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # A migration that waits for a lock makes every later query wait behind it: give up instead and try again.
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.add_column("transition", sa.Column("acted", sa.Text(), nullable=True))


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_column("transition", "acted")
