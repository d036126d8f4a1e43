"""Keeps the parts of one machine alive: starts them in order, starts again what dies, ends all of them."""

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
from typing import Protocol

from monitor.cli.errors import CommandError

STOP_SECONDS = 10.0
LONGEST_PAUSE = 30.0


class Part(Protocol):
    """Something that runs beside us. ``spawn`` and ``stop`` may be called again and again."""

    name: str

    def spawn(self) -> None:
        """Start it. Raises CommandError when that cannot succeed."""

    def wait_ready(self) -> None:
        """Return once it serves. Raises CommandError when it died or took too long."""

    def alive(self) -> bool: ...

    @property
    def pid(self) -> int | None: ...

    def last_words(self) -> str:
        """Why it is dead, in one sentence where that is known; empty otherwise."""

    def stop(self) -> None:
        """End it, cleanly if it lets us, within a bounded time."""


@dataclass
class Process:
    """A child process whose output goes to ``log``; ``ready`` answers whether it serves."""

    name: str
    command: Sequence[str]
    log: Path
    ready: Callable[[], bool]
    environment: Mapping[str, str] = field(default_factory=dict)
    ready_within: float = 60.0
    _process: subprocess.Popen[bytes] | None = None

    def spawn(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.environment},
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )

    def wait_ready(self) -> None:
        deadline = time.monotonic() + self.ready_within
        while not self.ready():
            if not self.alive():
                raise CommandError(f"{self.name} did not start: {self.last_words()}")
            if time.monotonic() > deadline:
                raise CommandError(f"{self.name} was not ready within {self.ready_within:.0f} s (its log is {self.log})")
            time.sleep(0.05)

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    @property
    def exit_code(self) -> int | None:
        return self._process.poll() if self._process is not None else None

    def last_words(self) -> str:
        ended = "" if self.exit_code is None else f"{_ended(self.exit_code)}; "
        return f"{ended}{_last_line(self.log)} (its log is {self.log})"

    def stop(self) -> None:
        if self._process is None:
            return
        if self.alive():
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()


def _die_with_parent() -> None:
    """Ask Linux to end this child when its parent dies, so that a killed supervisor leaves no orphan behind."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGTERM, 0, 0, 0)


def _ended(code: int) -> str:
    """How a process ended: ``killed by SIGKILL``, ``exit code 3``."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()] if log.exists() else []
    return f"its last words: {lines[-1]}" if lines else "it printed nothing"


@dataclass
class _Kept:
    part: Part
    started_at: float
    quick_deaths: int = 0
    retry_at: float | None = None


class Supervisor:
    """Keeps parts alive until :meth:`stop`. ``say`` receives one line for each thing a person should know."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._kept: list[_Kept] = []
        self._say = say

    def start(self, part: Part) -> None:
        """Start ``part``, wait until it is ready and keep it alive from now on. Raises CommandError."""
        begun = time.monotonic()
        self._kept.append(_Kept(part, begun))
        part.spawn()
        part.wait_ready()
        self._say(f"{part.name}: ready after {time.monotonic() - begun:.1f} s (pid {part.pid})")

    def watch(self) -> None:
        """Start every dead part again once its pause is over; the pause doubles with each quick death, up to half a minute."""
        for kept in self._kept:
            now = time.monotonic()
            if kept.part.alive():
                continue
            if kept.retry_at is None:
                kept.quick_deaths = kept.quick_deaths + 1 if now - kept.started_at < LONGEST_PAUSE else 1
                pause = min(LONGEST_PAUSE, 0.25 * 2 ** (kept.quick_deaths - 1))
                kept.retry_at = now + pause
                words = kept.part.last_words()
                self._say(f"{kept.part.name} ended{f': {words}' if words else ''}; starting it again in {pause:.2g} s")
            if now >= kept.retry_at:
                kept.started_at, kept.retry_at = now, None
                try:
                    kept.part.spawn()
                    self._say(f"{kept.part.name}: started again (pid {kept.part.pid})")
                except (CommandError, OSError) as error:
                    self._say(f"{kept.part.name} could not be started: {error}")

    def stop(self) -> None:
        """End every part, the last started first."""
        while self._kept:
            self._kept.pop().part.stop()
