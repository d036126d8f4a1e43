"""alert identities, the health of channels and evaluations that failed

Revision ID: 0002
Revises: 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # A migration that waits for a lock makes every later query wait behind it: give up instead and try again.
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.create_table(
        "channel",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), server_default="ok", nullable=False),
        sa.Column("failures", sa.Integer(), server_default="0", nullable=False),
        sa.Column("rest_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("probe_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_ok_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_error_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_channel")),
    )
    op.add_column("alert", sa.Column("uid", sa.Uuid(), nullable=False))
    op.create_unique_constraint(op.f("uq_alert_uid"), "alert", ["uid"])
    op.add_column("evaluation", sa.Column("failures", sa.Integer(), server_default="0", nullable=False))
    op.add_column("evaluation", sa.Column("seconds", sa.Double(), server_default="0", nullable=False))
    op.add_column("evaluation", sa.Column("retry_at", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    op.drop_column("evaluation", "retry_at")
    op.drop_column("evaluation", "seconds")
    op.drop_column("evaluation", "failures")
    op.drop_constraint(op.f("uq_alert_uid"), "alert", type_="unique")
    op.drop_column("alert", "uid")
    op.drop_table("channel")
