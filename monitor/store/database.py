"""The connection to PostgreSQL: engine, migrations, and the checks that turn a wrong set-up into one sentence."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from monitor.wire import to_json

MIN_VERSION = 15
_MIGRATION_LOCK = 0x7669_7461_6C73
"""The advisory lock that lets one process migrate at a time ("vitals")."""


class DatabaseError(RuntimeError):
    """The database cannot be used; the message is one sentence that says what to do."""


class DatabaseUnreachable(DatabaseError):
    """No answer from the server, or it turned us away."""


class DatabaseOutdated(DatabaseError):
    """The schema is not the one that this program needs."""


def read_url(raw: str) -> URL:
    """``postgres://...`` or ``postgresql://...`` as SQLAlchemy's asyncpg address. Raises DatabaseError for anything else."""
    try:
        url = make_url(raw)
    except ArgumentError:
        raise DatabaseError("VITALS_DATABASE_URL is not an address; write postgresql://user:password@host:5432/database.") from None
    if url.drivername not in ("postgres", "postgresql", "postgresql+asyncpg"):
        raise DatabaseError(f"VITALS_DATABASE_URL names {url.drivername!r}; only postgresql:// works.")
    return url.set(drivername="postgresql+asyncpg")


def create_engine(url: str | URL, *, pool_size: int = 8, application: str = "rlvitals") -> AsyncEngine:
    """An engine whose commits are durable, whatever the server's default. ``pool_size=0`` opens a connection for each use."""
    address = read_url(url) if isinstance(url, str) else url
    pool: dict[str, Any] = {"poolclass": NullPool} if pool_size == 0 else {"pool_size": pool_size, "max_overflow": pool_size, "pool_timeout": 10}
    return create_async_engine(
        address,
        json_serializer=lambda value: to_json(value).decode(),
        connect_args={"timeout": 10, "server_settings": {"application_name": application, "synchronous_commit": "on", "timezone": "UTC"}},
        **pool,
    )


@asynccontextmanager
async def opened(url: str | URL) -> AsyncIterator[AsyncEngine]:
    """An engine for a short task, closed at the end."""
    engine = create_engine(url, pool_size=0)
    try:
        yield engine
    finally:
        await engine.dispose()


async def migrate(url: str | URL) -> str:
    """Brings the database up to date and returns its revision. Safe to call from several processes. Raises DatabaseError."""
    async with opened(url) as engine, reaching(engine.url), engine.begin() as connection:
        await check_version(connection)
        await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
        _refuse_unknown(await connection.run_sync(_revision), engine.url)
        await connection.run_sync(_upgrade)
    return head()


async def require_current(engine: AsyncEngine) -> None:
    """Raises DatabaseUnreachable, DatabaseOutdated or DatabaseError unless the database answers and has this program's schema."""
    async with reaching(engine.url), engine.connect() as connection:
        await check_version(connection)
        found = await connection.run_sync(_revision)
    _refuse_unknown(found, engine.url)
    if found != head():
        stands = f"The database {place(engine.url)} is at revision {found or 'none'}"
        raise DatabaseOutdated(f"{stands}, this program needs {head()}; run `vitals migrate`.")


async def check_version(connection: AsyncConnection) -> None:
    """Raises DatabaseError for a server older than PostgreSQL 15."""
    found = int((await connection.execute(text("SHOW server_version_num"))).scalar_one())
    if found < MIN_VERSION * 10_000:
        raise DatabaseError(f"The database server is PostgreSQL {found // 10_000}; version {MIN_VERSION} or later is needed.")


def head() -> str:
    """The newest revision this program knows."""
    revision = ScriptDirectory.from_config(alembic_config()).get_current_head()
    assert revision is not None
    return revision


def alembic_config() -> Config:
    """Alembic's configuration, without an ini file."""
    spec = importlib.util.find_spec("migrations")
    if spec is None or spec.origin is None:
        raise DatabaseError("The package 'migrations' is missing; install rlvitals again.")
    config = Config()
    config.set_main_option("script_location", str(Path(spec.origin).parent).replace("%", "%%"))
    return config


@asynccontextmanager
async def reaching(url: URL) -> AsyncIterator[None]:
    """Turns whatever keeps us from the server into DatabaseUnreachable."""
    try:
        yield
    except (OSError, DBAPIError) as error:
        if not is_unreachable(error):
            raise
        remedy = (
            "`vitals up` runs one there, VITALS_DATABASE_URL names another"
            if _host(url).startswith("/")
            else "check that the server runs and that VITALS_DATABASE_URL is right"
        )
        raise DatabaseUnreachable(f"The database {place(url)} does not answer: {_sentence(error)}; {remedy}.") from error


def place(url: URL) -> str:
    """Which database ``url`` is, without its password: ``rlvitals at db.example.org``, or the folder of an embedded one."""
    return f"{url.database} at {_host(url)}"


def _host(url: URL) -> str:
    return str(url.host or url.query.get("host") or "localhost")


def is_unreachable(error: OSError | DBAPIError) -> bool:
    """Whether the server is away or turns us away, as opposed to a statement that is wrong."""
    if isinstance(error, OSError):  # a TimeoutError is one
        return True
    # Without a statement it failed to connect, begin or end.
    return error.statement is None or error.connection_invalidated or _sqlstate(error).startswith(_CONNECTION_TROUBLE)


@asynccontextmanager
async def transaction(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """A transaction that commits at the end of the block. Raises DatabaseUnreachable when the server goes away before it has."""
    async with reaching(engine.url), engine.begin() as connection:
        yield connection


_CONNECTION_TROUBLE = ("08", "28", "3D", "40", "53", "55P03", "57")
"""SQLSTATEs by their beginning: connection, authorization, no such database, deadlock, out of resources, lock timeout, operator's intervention."""


def is_bad_value(error: DBAPIError) -> bool:
    """Whether a statement failed on a value it was given: out of range, or text that PostgreSQL cannot hold."""
    return _sqlstate(error).startswith("22") or isinstance(error.orig.__cause__ if error.orig else None, asyncpg.DataError)


def _sqlstate(error: DBAPIError) -> str:
    return getattr(error.orig, "sqlstate", None) or ""


def _sentence(error: BaseException) -> str:
    cause = getattr(error, "orig", None) or error
    return (str(cause).splitlines() or [""])[0].rstrip(".") or type(cause).__name__


def _revision(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _refuse_unknown(revision: str | None, url: URL) -> None:
    known = {script.revision for script in ScriptDirectory.from_config(alembic_config()).walk_revisions()}
    if revision is not None and revision not in known:
        raise DatabaseOutdated(f"The database {place(url)} is at revision {revision}, which is newer than this program; install the newer rlvitals.")


def _upgrade(connection: Connection) -> None:
    config = alembic_config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
