"""Running untrusted candidates: a worker process with limits, watched by a deadline, killed and replaced when it does not answer."""

from __future__ import annotations

import json
import os
import secrets
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

WORKER = Path(__file__).with_name("sandbox_worker.py")
BATCH = 64
"""Candidates in the pipe at once: their requests and answers both fit in a pipe's 64 KiB buffer."""


class Candidate(NamedTuple):
    """Python source and the expressions that test it."""

    source: str
    tests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Limits:
    """What one candidate may use: CPU seconds, wall seconds without an answer, bytes of address space."""

    cpu_s: float = 0.25
    wall_s: float = 5.0
    memory_bytes: int = 256 * 2**20


class Sandbox:
    """Judges candidates in one persistent worker. ``killed`` counts the workers that a candidate took down."""

    def __init__(self, limits: Limits | None = None, *, strict: bool = True) -> None:
        self.limits = limits or Limits()
        self.strict = strict
        self.killed = 0
        self._worker: subprocess.Popen[bytes] | None = None
        self._buffer = b""

    def judge(self, candidates: Sequence[Candidate]) -> list[str]:
        """For each candidate one letter per test: P passed, F failed, E raised, ran out of its limits or took the worker down."""
        results: dict[int, str] = {}
        while len(results) < len(candidates):
            waiting = [i for i in range(len(candidates)) if i not in results][:BATCH]
            answered = self._ask({i: candidates[i] for i in waiting})
            results |= answered
            if len(answered) < len(waiting):
                culprit = waiting[len(answered)]
                results[culprit] = "E" * len(candidates[culprit].tests)
                self.killed += 1
                self.close()
        return [results[i] for i in range(len(candidates))]

    def close(self) -> None:
        """Kill the worker; the next call starts a new one."""
        worker, self._worker, self._buffer = self._worker, None, b""
        if worker is not None:
            if worker.poll() is None:
                worker.send_signal(signal.SIGKILL)
            worker.wait()
            for pipe in (worker.stdin, worker.stdout):
                if pipe is not None:
                    pipe.close()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> subprocess.Popen[bytes]:
        if self._worker is None:
            self._worker = subprocess.Popen(
                [sys.executable, "-I", "-S", str(WORKER), str(self.limits.memory_bytes), str(self.limits.cpu_s)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={},
                cwd="/",
                bufsize=0,
            )
        return self._worker

    def _ask(self, batch: dict[int, Candidate]) -> dict[int, str]:
        """Answers in the order of ``batch``, up to the candidate that failed to give one."""
        worker = self._start()
        assert worker.stdin is not None and worker.stdout is not None
        secret = secrets.randbits(48)  # a candidate that writes answers of its own does not know it
        requests = [{"id": secret + i, "source": c.source, "tests": c.tests, "strict": self.strict} for i, c in batch.items()]
        answers: dict[int, str] = {}
        try:
            worker.stdin.write("".join(json.dumps(r) + "\n" for r in requests).encode())
        except BrokenPipeError:
            return answers
        with selectors.DefaultSelector() as selector:
            selector.register(worker.stdout, selectors.EVENT_READ)
            deadline = time.monotonic() + self.limits.wall_s
            while len(answers) < len(batch):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    return answers
                chunk = os.read(worker.stdout.fileno(), 1 << 16)
                if not chunk:
                    return answers
                *lines, self._buffer = (self._buffer + chunk).split(b"\n")
                for line in lines:
                    deadline = time.monotonic() + self.limits.wall_s
                    if len(answers) == len(batch) or not _take(line, answers, list(batch)[len(answers)], secret, batch):
                        return answers
        return answers


def _take(line: bytes, answers: dict[int, str], expected: int, secret: int, batch: dict[int, Candidate]) -> bool:
    """Record one answer; False when the line is not the worker's own, so that the candidate in turn is to blame."""
    try:
        answer = json.loads(line)
        results = answer["results"]
        if answer["id"] != secret + expected or len(results) != len(batch[expected].tests) or set(results) - set("PFE"):
            return False
    except (ValueError, KeyError, TypeError):
        return False
    answers[expected] = results
    return True
