"""Runs the parts of one machine as child processes: starts them in order, restarts what dies, ends all of them."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from monitor.cli.errors import CommandError

STOP_SECONDS = 10.0
LONGEST_PAUSE = 30.0


@dataclass
class Part:
    """One child process. ``ready`` answers whether it serves; ``stop_signal`` ends it cleanly; its output goes to ``log``."""

    name: str
    command: Sequence[str]
    log: Path
    ready: Callable[[], bool]
    ready_within: float = 60.0
    stop_signal: signal.Signals = signal.SIGTERM
    restart: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)
    before: Callable[[], None] = lambda: None
    process: subprocess.Popen[bytes] | None = None
    restarts: int = 0
    started_at: float = 0.0
    retry_at: float = 0.0

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None


def _die_with_parent() -> None:
    """Ask Linux to end this child when its parent dies, so that a killed supervisor leaves no orphan behind."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGTERM, 0, 0, 0)


class Supervisor:
    """Keeps a list of parts alive until :meth:`stop`. ``say`` receives one line for each thing a person should know."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.parts: list[Part] = []
        self.say = say

    def start(self, part: Part) -> None:
        """Start ``part`` and wait until it is ready. Raises CommandError with the end of its log if it dies or takes too long."""
        self.parts.append(part)
        self._spawn(part)
        deadline = time.monotonic() + part.ready_within
        while not part.ready():
            if not part.alive:
                raise CommandError(f"{part.name} did not start: {_last_line(part.log)} (full log: {part.log})")
            if time.monotonic() > deadline:
                raise CommandError(f"{part.name} was not ready within {part.ready_within:.0f} s (log: {part.log})")
            time.sleep(0.05)
        self.say(f"{part.name}: ready after {time.monotonic() - part.started_at:.1f} s")

    def _spawn(self, part: Part) -> None:
        part.before()
        part.log.parent.mkdir(parents=True, exist_ok=True)
        part.started_at = time.monotonic()
        with part.log.open("ab") as log:
            part.process = subprocess.Popen(
                part.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **part.environment},
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )

    def watch(self) -> None:
        """Restart every dead part whose pause is over; the pause doubles with each quick death, up to half a minute."""
        now = time.monotonic()
        for part in self.parts:
            if part.alive or not part.restart or part.process is None:
                continue
            if part.retry_at < part.started_at:
                quick = now - part.started_at < LONGEST_PAUSE
                part.restarts = part.restarts + 1 if quick else 1
                pause = min(LONGEST_PAUSE, 0.25 * 2 ** (part.restarts - 1))
                part.retry_at = now + pause
                self.say(f"{part.name} ended ({_how(part.process.returncode)}); starting it again in {pause:.2g} s")
            if now >= part.retry_at:
                try:
                    self._spawn(part)
                except OSError as error:
                    part.started_at = now
                    self.say(f"{part.name} could not be started: {error}")

    def stop(self) -> None:
        """End every part, last started first: its stop signal, then SIGKILL after a bounded wait."""
        for part in reversed(self.parts):
            if part.process is None:
                continue
            if part.alive:
                part.process.send_signal(part.stop_signal)
                try:
                    part.process.wait(STOP_SECONDS)
                except subprocess.TimeoutExpired:
                    self.say(f"{part.name} did not stop within {STOP_SECONDS:.0f} s and is killed")
                    part.process.kill()
            part.process.wait()
        self.parts.clear()


def _how(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()] if log.exists() else []
    return lines[-1] if lines else "it printed nothing"
