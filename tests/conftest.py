"""A real PostgreSQL for every test that asks for one: a server per session, and a fresh copy of a migrated database per test.

``VITALS_TEST_DATABASE_URL`` runs the same tests in an existing server, whose user must be allowed to create databases.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
_numbers = itertools.count(1)
_THROWAWAY = {
    "max_connections": "200",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "1h",
    "autovacuum": "off",
    "jit": "off",
}
"""Copying a database takes a seventh of the time without a full write-ahead log."""


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def roomy_tmp() -> Iterator[Path]:
    """An empty folder that any user can enter (pytest's own cannot be, and PostgreSQL does not run as root) with a short path."""
    folder = Path(tempfile.mkdtemp(prefix="vitals-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address of a server's maintenance database."""
    if existing := os.environ.get("VITALS_TEST_DATABASE_URL"):
        yield existing
        return
    from monitor.store import embedded

    folder = Path(tempfile.mkdtemp(prefix="vitals-"))
    folder.chmod(0o755)
    server = embedded.start(folder, durable=False, options=_THROWAWAY)
    with subprocess.Popen([sys.executable, "-c", _UNDERTAKER, str(folder)], stdin=subprocess.PIPE, start_new_session=True):
        yield server.cluster.database_url("postgres")
        server.stop()


_UNDERTAKER = """
import os, pathlib, shutil, signal, sys, time
folder = pathlib.Path(sys.argv[1])
sys.stdin.read()
lock = folder / "postgres" / "postmaster.pid"
if lock.exists():
    os.kill(int(lock.read_text().split()[0]), signal.SIGQUIT)
    time.sleep(1)
shutil.rmtree(folder, ignore_errors=True)
"""
"""Waits for the end of its input, which also comes when the tests are killed, and leaves no server and no folder behind."""


async def _administer(url: str, statement: str) -> None:
    from sqlalchemy import text

    from monitor.store import database

    async with database.opened(url) as engine, engine.connect() as connection:
        await (await connection.execution_options(isolation_level="AUTOCOMMIT")).execute(text(statement))


def _with_database(url: str, name: str) -> str:
    from monitor.store import database

    return database.read_url(url).set(database=name).render_as_string(hide_password=False)


@pytest.fixture(scope="session")
def template_database(postgres: str) -> Iterator[str]:
    """The name of a migrated database."""
    from monitor.store import database

    name = f"vitals_template_{os.getpid()}"
    asyncio.run(_administer(postgres, f"CREATE DATABASE {name}"))
    asyncio.run(database.migrate(_with_database(postgres, name)))
    yield name
    asyncio.run(_administer(postgres, f"DROP DATABASE {name} WITH (FORCE)"))


@pytest.fixture
def empty_database_url(postgres: str) -> Iterator[str]:
    """A database without a table."""
    name = f"vitals_empty_{os.getpid()}_{next(_numbers)}"
    asyncio.run(_administer(postgres, f"CREATE DATABASE {name}"))
    yield _with_database(postgres, name)
    asyncio.run(_administer(postgres, f"DROP DATABASE {name} WITH (FORCE)"))


@pytest.fixture
def database_url(postgres: str, template_database: str) -> Iterator[str]:
    """A migrated, empty database of the test's own."""
    name = f"vitals_test_{os.getpid()}_{next(_numbers)}"
    asyncio.run(_administer(postgres, f"CREATE DATABASE {name} TEMPLATE {template_database}"))
    yield _with_database(postgres, name)
    asyncio.run(_administer(postgres, f"DROP DATABASE {name} WITH (FORCE)"))


@pytest.fixture
async def engine(database_url: str) -> AsyncIterator[object]:
    """A pooled engine on the test's database."""
    from monitor.store import database

    engine = database.create_engine(database_url, pool_size=4)
    yield engine
    await engine.dispose()


@pytest.fixture
async def connection(engine: object) -> AsyncIterator[object]:
    """One connection in a transaction, committed at the end."""
    async with engine.begin() as connection:  # type: ignore[attr-defined]
        yield connection
