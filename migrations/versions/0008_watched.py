"""which runs a worker has to look at, so that stored history costs it nothing

Revision ID: 0008
Revises: 0007
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # A migration that waits for a lock makes every later query wait behind it: give up instead and try again.
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.add_column("run", sa.Column("watched", sa.Boolean(), server_default=sa.text("true"), nullable=False))
    op.create_index(op.f("ix_run_watched"), "run", ["id"], unique=False, postgresql_where=sa.text("watched"))
    op.drop_index(op.f("ix_evaluation_deadline_at"), table_name="evaluation")


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.create_index(op.f("ix_evaluation_deadline_at"), "evaluation", ["deadline_at"], unique=False)
    op.drop_index(op.f("ix_run_watched"), table_name="run")
    op.drop_column("run", "watched")
