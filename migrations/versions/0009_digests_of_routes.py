"""how often a route sends its digest goes with each delivery

Revision ID: 0009
Revises: 0008
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # A migration that waits for a lock makes every later query wait behind it: give up instead and try again.
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_column("delivery", "collected")
    op.add_column("delivery", sa.Column("digest_s", sa.Float(53), nullable=True))


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_column("delivery", "digest_s")
    op.add_column("delivery", sa.Column("collected", sa.Boolean(), server_default=sa.text("false"), nullable=False))
