"""room and no index in the way of rows that change with every batch

PostgreSQL updates a row in place of its page, without touching any index, if no indexed column changes and the page has room.

Revision ID: 0005
Revises: 0004
"""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # A migration that waits for a lock makes every later query wait behind it: give up instead and try again.
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_index(op.f("ix_run_last_seen_at"), table_name="run")
    for table in ("run", "evaluation", "rollup_cursor"):
        op.execute(f"ALTER TABLE {table} SET (fillfactor = 50)")


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    for table in ("run", "evaluation", "rollup_cursor"):
        op.execute(f"ALTER TABLE {table} RESET (fillfactor)")
    op.create_index(op.f("ix_run_last_seen_at"), "run", ["last_seen_at"], unique=False)
