"""``vitals work`` as a process: it survives its database and ends when asked to."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

from receiving import Receiver
from runs import Feed, broken, good, until

from monitor.store import database, embedded


def start(url: str, hook: str, log: Path) -> subprocess.Popen[bytes]:
    variables = {"VITALS_DATABASE_URL": url, "VITALS_WEBHOOK_URL": hook, "VITALS_ALLOW_PRIVATE_WEBHOOKS": "1"}
    command = [sys.executable, "-m", "monitor.cli", "work"]
    with log.open("wb") as out:
        return subprocess.Popen(command, env={**os.environ, **variables}, stdout=out, stderr=subprocess.STDOUT)


async def test_a_dead_database_is_waited_for_and_nothing_is_lost(roomy_tmp: Path, tmp_path: Path) -> None:
    server = embedded.start(roomy_tmp)
    engine = database.create_engine(server.url, pool_size=0)
    log = tmp_path / "log"
    await database.migrate(server.url)
    with Receiver() as receiver:
        process = start(server.url, receiver.url, log)
        try:
            feed = await Feed(engine, "r1").start()
            await feed.rows(good(3) + broken(1))
            await until(lambda: len(receiver.requests) == 1)
            for quiet, told in ((11, 3), (21, 5)):
                os.kill(server.pid, signal.SIGKILL)
                assert server.process is not None
                server.process.wait()
                await asyncio.sleep(1.0)
                assert process.poll() is None
                server = await asyncio.to_thread(embedded.start, roomy_tmp)
                await feed.rows(good(quiet))
                await feed.rows(broken(1))
                await until(lambda told=told: len({request.id for request in receiver.requests}) == told)
            kinds = list({request.id: request.json["type"] for request in receiver.requests}.values())
            assert kinds == ["alert.critical", "alert.resolved", "alert.critical", "alert.resolved", "alert.critical"]
            process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait, 20) == 0
        finally:
            process.kill()
            process.wait()
            await engine.dispose()
            server.stop()
    said = log.read_text()
    assert "Traceback" not in said and said.count("Waiting for it") == 2 and said.count("the database is back") == 2
    assert "SECRET-PATH" not in said


async def test_a_missing_database_is_one_sentence(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = start("postgresql://nobody@127.0.0.1:9/none", "http://127.0.0.1:9/", log)
    assert await asyncio.to_thread(process.wait, 30) == 2
    assert len(log.read_text().strip().splitlines()) == 1 and "127.0.0.1" in log.read_text()


async def test_a_wrong_secret_is_one_sentence(database_url: str) -> None:

    variables = {"VITALS_DATABASE_URL": database_url, "VITALS_WEBHOOK_URL": "http://127.0.0.1:9/", "VITALS_WEBHOOK_SECRET": "not base64"}
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-m", "monitor.cli", "work"], env={**os.environ, **variables}, capture_output=True, timeout=60
    )
    said = done.stderr.decode()
    assert done.returncode == 2 and "VITALS_WEBHOOK_SECRET" in said and "Traceback" not in said and "not base64" not in said
