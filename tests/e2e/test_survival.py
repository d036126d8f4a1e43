"""Everything `vitals up` runs is killed, more than once, while runs log and alerts are raised: nothing acknowledged is lost, nothing is doubled."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from receiving import Receiver
from sqlalchemy import text

import monitor.client
from monitor.alerts.judgement import context, judge
from monitor.cli.stack import answers, free_port
from monitor.detect.contract import Row

STEPS = 240
RUNS = 3
PARTS = ("collector and dashboards", "worker", "Postgres")


class Up:
    """A running `vitals up`; ``pids`` are the latest ones it printed."""

    def __init__(self, folder: Path, hook: str) -> None:
        self.port = free_port("127.0.0.1", 8950)
        self.address = f"http://127.0.0.1:{self.port}"
        self.lines: list[str] = []
        self.pids: dict[str, int] = {}
        command = [sys.executable, "-m", "monitor.cli", "up", "--port", str(self.port), "--data-dir", str(folder)]
        variables = {"VITALS_WEBHOOK_URL": hook, "VITALS_ALLOW_PRIVATE_WEBHOOKS": "1"}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **variables})
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            if found := re.match(r"(.+): (?:ready after .*|started again) \(pid (\d+)\)", line):
                self.pids[found[1]] = int(found[2])

    def kill(self, part: str) -> None:
        """Kills a part; one that has just ended by itself, because what it needs is gone, is waited for."""
        while True:
            until(lambda: part in self.pids, 60, "\n".join(self.lines))
            with contextlib.suppress(ProcessLookupError):
                return os.kill(self.pids.pop(part), signal.SIGKILL)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(60)
        self._reader.join(10)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


def until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def up(roomy_tmp: Path, receiver: Receiver) -> Iterator[Up]:
    up = Up(roomy_tmp, receiver.url)
    try:
        until(lambda: set(up.pids) == set(PARTS) and answers(up.address), 60, "\n".join(up.lines) or "vitals up said nothing")
        yield up
    finally:
        if up.process.poll() is None:
            up.stop()


def values(run: int, step: int) -> dict[str, float]:
    """A learning run whose gradient is not finite for three steps, at a different time in each run."""
    bad = 60 + 40 * run <= step < 63 + 40 * run
    return {
        "reward.task.mean": 0.5 + 0.4 * step / STEPS + 0.02 * math.sin(step * (run + 1)),
        "entropy.mean": 1.0,
        "opt.grad_norm": math.nan if bad else 0.5 + 0.05 * math.cos(step + run),
    }


async def stored(url: str, statement: str) -> list[tuple[object, ...]]:
    from monitor.store import database

    async with database.opened(url) as engine, engine.connect() as connection:
        return [tuple(row) for row in await connection.execute(text(statement))]


def rows_of(url: str) -> list[tuple[object, ...]]:
    return asyncio.run(stored(url, "SELECT r.name, p.seq, p.step, p.vals FROM point p JOIN run r ON r.id = p.run_id ORDER BY r.name, p.seq"))


def test_killing_collector_worker_and_postgres_loses_and_doubles_nothing(up: Up, receiver: Receiver, roomy_tmp: Path) -> None:
    from monitor.store import embedded

    database = embedded.cluster(roomy_tmp).url
    runs = [
        monitor.client.start("survival", f"run{i}", url=up.address, spool_dir=roomy_tmp / "spool", resume="never", algorithm="grpo")
        for i in range(RUNS)
    ]
    victims = iter([*PARTS, *reversed(PARTS)])
    for step in range(STEPS):
        for i, run in enumerate(runs):
            run.log(values(i, step), step=step)
        if step % 40 == 20 and (victim := next(victims, None)) is not None:
            up.kill(victim)
        time.sleep(0.05)
    for run in runs:
        run.finish(timeout=60)

    def judged() -> bool:
        try:
            lag = asyncio.run(stored(database, "SELECT r.state, r.next_seq - 1 - e.seq FROM run r JOIN evaluation e ON e.run_id = r.id"))
        except Exception:
            return False
        return len(lag) == RUNS and all(state == "finished" and behind == 0 for state, behind in lag)

    until(judged, 90, "\n".join(up.lines))

    rows = rows_of(database)
    for i in range(RUNS):
        mine = [row for row in rows if row[0] == f"run{i}"]
        assert [step for _, _, step, _ in mine] == list(range(STEPS))
        assert [seq for _, seq, _, _ in mine] == sorted({seq for _, seq, _, _ in mine})

    expected = {
        change.uid: change.alarms
        for i, run in enumerate(runs)
        for change in judge(run.uid, {}, [Row(step, step, values(i, step)) for step in range(STEPS)], context(algorithm="grpo")).transitions
    }
    assert sum(expected.values()) >= 2 * RUNS, "each run raises and resolves at least one alarm"
    found = [str(uid) for (uid,) in asyncio.run(stored(database, "SELECT uid FROM transition"))]
    assert sorted(found) == sorted(map(str, expected))

    alarms = {str(uid) for uid, alarm in expected.items() if alarm}
    until(lambda: {taken.id for taken in receiver.taken} >= alarms, 60, f"{len({t.id for t in receiver.taken})} of {len(alarms)} alerts arrived")
    assert {taken.id for taken in receiver.taken} == alarms
    assert len(receiver.taken) <= len(alarms) + 2, "a killed worker may send again what it had in hand, with the same id"
    assert up.stop() == 0
    assert embedded.running_pid(roomy_tmp) is None
