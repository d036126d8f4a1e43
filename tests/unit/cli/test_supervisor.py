from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from monitor.cli.errors import CommandError
from monitor.cli.supervisor import Process, Supervisor

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_killed_part_is_started_again_and_all_end_at_the_end(tmp_path: Path) -> None:
    told: list[str] = []
    supervisor = Supervisor(told.append)
    part = Process("sleeper", SLEEP, tmp_path / "log", lambda: True)
    supervisor.start(part)
    first = part.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)

    def restarted() -> bool:
        supervisor.watch()
        return part.alive() and part.pid != first

    until(lambda: not part.alive())
    until(restarted)
    supervisor.stop()
    assert not part.alive()
    assert any("starting it again" in line for line in told)
    assert any(line.startswith("sleeper ended: killed by SIGKILL; it printed nothing (its log is ") for line in told)


def test_a_part_that_dies_at_once_is_reported_with_its_last_words(tmp_path: Path) -> None:
    part = Process("faulty", [sys.executable, "-c", "print('the reason'); raise SystemExit(3)"], tmp_path / "log", lambda: False)
    supervisor = Supervisor(lambda line: None)
    with pytest.raises(CommandError, match="did not start: exit code 3; its last words: the reason "):
        supervisor.start(part)
    supervisor.stop()


def test_a_part_that_ignores_the_stop_signal_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitor.cli.supervisor.STOP_SECONDS", 0.2)
    stubborn = "import signal, time, pathlib, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); pathlib.Path(sys.argv[1]).touch(); time.sleep(60)"
    flag = tmp_path / "ready"
    part = Process("stubborn", [sys.executable, "-c", stubborn, str(flag)], tmp_path / "log", flag.exists)
    supervisor = Supervisor(lambda line: None)
    supervisor.start(part)
    supervisor.stop()
    assert part.exit_code == -signal.SIGKILL
