"""How alembic meets the database: on the connection that ``monitor.store.database`` hands over, or on one of its own.

To write a revision: ``VITALS_DATABASE_URL=... alembic -c migrations/alembic.ini revision --autogenerate -m "what changes"``.
"""

from __future__ import annotations

import asyncio
import os

from alembic import context
from sqlalchemy import Connection

from monitor.store.database import opened
from monitor.store.tables import metadata


def _migrate(connection: Connection) -> None:
    context.configure(connection=connection, target_metadata=metadata, compare_type=True, compare_server_default=True)
    with context.begin_transaction():
        context.run_migrations()


async def _connect_and_migrate() -> None:
    async with opened(os.environ["VITALS_DATABASE_URL"]) as engine, engine.begin() as connection:
        await connection.run_sync(_migrate)


if (handed := context.config.attributes.get("connection")) is not None:
    _migrate(handed)
else:
    asyncio.run(_connect_and_migrate())
