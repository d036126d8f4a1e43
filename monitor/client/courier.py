"""Carries one spool to the collector, one message at a time: open the attempt, send its batches in order, close it.

Nothing is given up on: what cannot be delivered now is tried again with growing, jittered pauses or when ``Retry-After`` says. Only an
answer that says the message itself is wrong (4xx) lets a batch go; it is reported once and counted.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from monitor import wire
from monitor.client import encode
from monitor.client.spool import Parcel, Spool
from monitor.client.transport import NOT_A_COLLECTOR, Answer, Transport

FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 30.0
REFUSED_PAUSE_S = 300.0


def _random() -> float:
    """Uniform in [0, 1). The random module would take a tenth of the SDK's import time."""
    return int.from_bytes(os.urandom(4), "big") / 2**32


class Voice:
    """Standard error, one line per subject."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def __call__(self, subject: str, text: str) -> None:
        if subject not in self._said and len(self._said) < 1000:
            self._said.add(subject)
            print(f"vitals: {text}", file=sys.stderr, flush=True)

    def forget(self, subject: str) -> None:
        self._said.discard(subject)


class Courier:
    """Delivers ``spool`` over ``transport``. Used by one thread; :meth:`step` never raises on what the network does."""

    def __init__(self, spool: Spool, transport: Transport, say: Voice, jitter: Callable[[], float] = _random) -> None:
        self.spool = spool
        self.transport = transport
        self.page: str | None = None
        self.rows = 0
        self.refused = 0
        self.refused_rows = 0
        self.done = False
        self.requests: frozenset[str] = frozenset()
        self._say = say
        self._jitter = jitter
        self._opened = False
        self._failures = 0

    @property
    def failing(self) -> bool:
        return self._failures > 0

    def step(self) -> float | None:
        """Do one thing. Returns the seconds until the next is due, or None when all that the spool holds is delivered."""
        if not self._opened:
            return self._open()
        parcel = self.spool.take()
        if parcel is None:
            return None
        return self._close(parcel) if parcel.end is not None else self._send(parcel)

    def beat(self) -> None:
        """Tell the collector that the run is alive although it has nothing to say, and fetch the open requests."""
        if self._opened:
            answer = self.transport.post(self._path("batches"), wire.to_json(wire.Batch(self.spool.attempt, 0)))
            if answer.ok:
                self._hear(answer)

    def _path(self, verb: str) -> str:
        return f"{wire.API}/runs/{self.spool.opening['run']}/{verb}"

    def _open(self) -> float:
        answer = self.transport.post(f"{wire.API}/runs", json.dumps(self.spool.opening).encode())
        if answer.ok and not isinstance(answer.body.get("url"), str):
            answer = Answer(answer.status, problem=NOT_A_COLLECTOR)
        if answer.ok:
            self._opened = True
            self.page = answer.body["url"]
            return self._well()
        if answer.permanent:
            self._say("refused start", f"the collector refused the run: {answer.problem}; its rows stay in {self.spool.folder}")
            return REFUSED_PAUSE_S
        return self._ill(answer)

    def _send(self, parcel: Parcel) -> float:
        answer = self.transport.post(self._path("batches"), parcel.body(self.spool.attempt))
        if answer.ok and not isinstance(answer.body.get("accepted"), int):
            answer = Answer(answer.status, problem=NOT_A_COLLECTOR)
        if answer.ok or (answer.status == 422 and isinstance(answer.body.get("refused"), list)):
            self._hear(answer)
            refusals = answer.body.get("refused")
            refused_rows = self._report(refusals if isinstance(refusals, list) else [])
            self.refused_rows += refused_rows
            self.rows += parcel.count(encode.ROW) - refused_rows
        elif answer.status == 404:
            # the collector does not know this attempt (a new database, say): open it again, then send the same batch
            self._opened = False
            return self._ill(answer) if self.failing else self._pause()
        elif answer.permanent:
            lost = sum(len(texts) for texts in parcel.records.values())
            self.refused += lost
            self.refused_rows += parcel.count(encode.ROW)
            self._say("refused batch", f"the collector refused a batch of {lost} records: {answer.problem}; they are left out")
        else:
            return self._ill(answer)
        self.spool.acknowledge()
        return self._well()

    def _close(self, parcel: Parcel) -> float | None:
        answer = self.transport.post(self._path("finish"), json.dumps({"attempt": self.spool.attempt} | (parcel.end or {})).encode())
        if answer.status == 404:
            self._opened = False
            return self._ill(answer) if self.failing else self._pause()
        if not answer.ok and not answer.permanent:
            return self._ill(answer)
        if answer.permanent:
            self._say("refused end", f"the collector refused the end of the run: {answer.problem}")
        self.spool.acknowledge()
        self.done = True
        return None

    def _report(self, refusals: list[Any]) -> int:
        """Count and tell what of a batch was left out; returns how many rows."""
        known = [refusal for refusal in refusals if isinstance(refusal, dict)]
        for refusal in known:
            field = str(refusal.get("field"))
            self._say(f"refused {field}", f"the collector left out a {refusal.get('kind')}: {field}: {refusal.get('reason')}")
        self.refused += len(known)
        return sum(refusal.get("kind") == "row" for refusal in known)

    def _hear(self, answer: Answer) -> None:
        asked = answer.body.get("requests")
        self.requests = frozenset(asked) if isinstance(asked, list) else frozenset()

    def _well(self) -> float:
        if self._failures > 1:
            self._say.forget("unreachable")
            self._say.forget("answers again")
            self._say("answers again", f"the collector at {self.transport.url} answers again; what waited is being sent")
        self._failures = 0
        return 0.0

    def _ill(self, answer: Answer) -> float:
        url = self.transport.url
        if answer.status in (401, 403):
            wants = "does not accept the token it was sent" if self.transport.token else "wants a token; set VITALS_TOKEN"
            self._say("unreachable", f"the collector at {url} {wants} ({answer.problem}). Rows are kept")
        elif self._failures or answer.status < 300:
            self._say(
                "unreachable", f"no collector takes data at {url} ({answer.problem}); rows are kept in {self.spool.folder} and sent when it does"
            )
        return self._pause(answer.retry_after)

    def _pause(self, at_least: float | None = None) -> float:
        self._failures += 1
        longest = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(self._failures - 1, 10))
        return max(longest * (0.5 + self._jitter() / 2), at_least or 0.0)


def deliver(courier: Courier, timeout: float, *, stopped: Callable[[], bool] = lambda: False) -> bool:
    """Whether everything of the courier's spool was delivered; gives up after ``timeout`` seconds without progress or when ``stopped``."""
    deadline = time.monotonic() + timeout
    while not stopped():
        pause = courier.step()
        if pause is None:
            return True
        if not courier.failing:
            deadline = time.monotonic() + timeout
        elif time.monotonic() + pause > deadline:
            return False
        time.sleep(min(pause, 1.0) if pause else 0.0)
    return False
