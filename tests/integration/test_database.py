"""Migrations, connections and the complaints about wrong ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, text

from monitor.store import database
from monitor.store.tables import metadata


def _differences(connection: Connection) -> list[object]:
    return compare_metadata(MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True}), metadata)


async def test_migrations_build_the_tables(database_url: str) -> None:
    async with database.opened(database_url) as engine, engine.connect() as connection:
        assert await connection.run_sync(_differences) == []


async def test_a_forgotten_column_would_be_noticed(database_url: str) -> None:
    async with database.opened(database_url) as engine, engine.begin() as connection:
        await connection.execute(text("ALTER TABLE run DROP COLUMN label"))
        assert len(await connection.run_sync(_differences)) == 1


async def test_two_processes_may_migrate_at_once(empty_database_url: str) -> None:
    assert set(await asyncio.gather(*(database.migrate(empty_database_url) for _ in range(3)))) == {database.head()}
    async with database.opened(empty_database_url) as engine:
        await database.require_current(engine)


async def test_an_empty_database_asks_for_the_migration(empty_database_url: str) -> None:
    async with database.opened(empty_database_url) as engine:
        with pytest.raises(database.DatabaseOutdated, match=r"^The database vitals_\w+ at .* is at revision none.*vitals migrate"):
            await database.require_current(engine)


async def test_a_newer_schema_is_refused(database_url: str) -> None:
    async with database.opened(database_url) as engine:
        async with engine.begin() as connection:
            await connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        with pytest.raises(database.DatabaseOutdated, match="newer"):
            await database.require_current(engine)
        with pytest.raises(database.DatabaseOutdated, match="newer"):
            await database.migrate(database_url)


@pytest.mark.parametrize("port", ["1"])
async def test_nobody_answers(port: str) -> None:
    async with database.opened(f"postgresql://someone@127.0.0.1:{port}/nothing") as engine:
        with pytest.raises(database.DatabaseUnreachable, match=r"nothing at 127\.0\.0\.1"):
            await database.require_current(engine)


async def test_a_database_that_is_not_there(database_url: str) -> None:
    with pytest.raises(database.DatabaseUnreachable, match="no_such_database"):
        await database.migrate(database.read_url(database_url).set(database="no_such_database"))


@pytest.mark.parametrize("url", ["mysql://localhost/x", "sqlite:///x.db", "nonsense", ""])
async def test_other_databases_are_refused(url: str) -> None:
    with pytest.raises(database.DatabaseError, match="VITALS_DATABASE_URL"):
        database.read_url(url)


async def test_migrations_can_be_undone_and_done_again(database_url: str) -> None:
    async with database.opened(database_url) as engine, engine.begin() as connection:
        for migrate, target in ((command.downgrade, "base"), (command.upgrade, "head")):
            await connection.run_sync(_alembic, migrate, target)
        assert await connection.run_sync(_differences) == []


def _alembic(connection: Connection, migrate: Callable[[Config, str], None], target: str) -> None:
    config = database.alembic_config()
    config.attributes["connection"] = connection
    migrate(config, target)
