"""A collector, a worker and a Postgres of their own, each a process that can be killed and started again at the same address."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import text

from monitor.cli.stack import answers, free_port
from monitor.store import database, embedded

REPOSITORY = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Stored:
    """One row as Postgres holds it."""

    run: str
    attempt: str
    segment: int
    seq: int
    step: int
    values: dict[str, float]


class Rig:
    """The processes. ``durable`` is what a user gets; tests that need speed and kill no Postgres may do without."""

    def __init__(self, folder: Path, *, durable: bool = True) -> None:
        self.folder = folder
        self.durable = durable
        self.port = free_port("127.0.0.1", random.randrange(20_000, 32_000))
        self.url = f"http://127.0.0.1:{self.port}"
        self.children: dict[str, subprocess.Popen[bytes]] = {}
        self.start_postgres()
        asyncio.run(database.migrate(self.server.url))

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("VITALS_")}
        return kept | {"VITALS_DATABASE_URL": self.server.url, "PYTHONPATH": str(REPOSITORY), "VITALS_URL": self.url}

    def start_postgres(self, **options: str) -> None:
        """Start the server, or start it again after it was killed or stopped, with PostgreSQL settings ``options``."""
        for attempt in range(20):
            try:
                self.server = embedded.start(self.folder / "data", durable=self.durable, options={"max_connections": "60"} | options)
                return
            except embedded.EmbeddedError:
                if attempt == 19:
                    raise
                time.sleep(0.5)

    def start(self, name: str, command: Sequence[str], **variables: str) -> None:
        """Start ``python COMMAND``; its output goes to ``folder/NAME.log``."""
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen([sys.executable, *command], stdout=log, stderr=log, env=self.environment | variables, cwd=self.folder)
        self.children[name] = process

    def start_collector(self, *, wait: bool = True) -> None:
        self.start("collector", ["-m", "monitor.cli", "serve", "--role", "collector", "--port", str(self.port)])
        if wait:
            self.until(self.answers, "the collector to answer")

    def start_worker(self, **variables: str) -> None:
        self.start("worker", ["-m", "monitor.cli", "work"], **variables)

    def cpu_seconds(self, name: str) -> float:
        """What a process has used so far, ``postgres`` with its living backends (Linux)."""
        pid, ticks = self.server.pid if name == "postgres" else self.children[name].pid, 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                fields = stat.read_text().rpartition(")")[2].split()
                if pid in (int(stat.parent.name), int(fields[1])):
                    ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def kill(self, name: str) -> None:
        """SIGKILL: the process has no say."""
        if name == "postgres":
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.server.pid, signal.SIGKILL)
            if self.server.process is not None:
                self.server.process.wait()
            self.server.alive()
            return
        process = self.children[name]
        process.kill()
        process.wait()

    def answers(self) -> bool:
        return answers(self.url)

    def until(self, condition: Any, what: str, seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {seconds:g} s for {what}; see {self.folder}")
            time.sleep(0.05)

    def stored(self) -> list[Stored]:
        """Every row, in the order in which its run took it."""
        query = """
            SELECT run.uid, segment.attempt, point.segment, point.seq, point.step, metric_set.names, point.vals
            FROM point JOIN run ON run.id = point.run_id JOIN segment USING (run_id, segment) JOIN metric_set ON metric_set.id = point.set_id
            ORDER BY run.uid, point.seq"""
        return [Stored(*row[:5], dict(zip(row[5], row[6], strict=True))) for row in self.query(query)]

    def query(self, statement: str) -> list[Any]:
        async def fetch() -> list[Any]:
            async with database.opened(self.server.url) as engine, engine.connect() as connection:
                return list((await connection.execute(text(statement))).all())

        return asyncio.run(fetch())

    def execute(self, statement: str, **values: Any) -> None:
        async def change() -> None:
            async with database.opened(self.server.url) as engine, engine.connect() as connection:
                await (await connection.execution_options(isolation_level="AUTOCOMMIT")).execute(text(statement), values)

        asyncio.run(change())

    def stop(self) -> None:
        for process in self.children.values():
            if process.poll() is None:
                process.terminate()
        for process in self.children.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.server.stop()


@contextlib.contextmanager
def rig(*, durable: bool = True, collector: bool = True, worker: bool = False) -> Iterator[Rig]:
    """A running rig in a temporary folder that is removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="vitals-rig-"))
    folder.chmod(0o755)
    found: Rig | None = None
    try:
        found = Rig(folder, durable=durable)
        if collector:
            found.start_collector()
        if worker:
            found.start_worker()
        yield found
    finally:
        if found is not None:
            found.stop()
        shutil.rmtree(folder, ignore_errors=True)
