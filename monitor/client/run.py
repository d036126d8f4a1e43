"""A training run that logs: :func:`monitor.client.start` opens it, :class:`Run` takes its rows, two background threads do the rest.

The training thread only appends to a queue. A writer thread turns the queue into lines of the spool five times a second; a sender thread
carries the spool to the collector. Neither shares a lock with the training thread.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from monitor import wire
from monitor.client import encode, lifetime
from monitor.client.checks import Unusable, use_kind, use_mapping, use_seconds, use_step
from monitor.client.courier import Courier, Voice, deliver
from monitor.client.identity import remember
from monitor.client.spool import Spool, left_behind
from monitor.client.transport import Transport

FLUSH_S = 0.2
SYNC_S = 1.0
BEAT_S = 30.0
FINISH_TIMEOUT_S = 10.0
MOST_QUEUED_ROWS = 20_000
MOST_QUEUED_ROLLOUTS = 1_000
ROWS_PER_WRITE = 64
KINDS = ("rows", "values", "rollouts", "events")
REQUEST_DONE = "request_done"

_PLAIN = frozenset((float, int))


@dataclass(frozen=True, slots=True)
class Stats:
    """What became of the records handed in.

    ``logged``, ``sent`` and ``pending`` count rows; ``dropped`` counts records of every kind that were shed, ``refused`` those that the
    collector did not keep.
    """

    logged: int = 0
    sent: int = 0
    pending: int = 0
    dropped: int = 0
    refused: int = 0


class Run:
    """An open run. No method raises, and only :meth:`finish` waits, at most for its timeout. Methods may be called from any thread.

    ``uid`` identifies the run at the collector, ``attempt`` this process of it; ``page`` (also ``url``) is its address for a browser once
    the collector has answered.
    """

    def __init__(self, spool: Spool | None, opening: wire.RunStart | None, token: str | None = None) -> None:
        self.uid = opening.run if opening else ""
        self.attempt = opening.attempt if opening else ""
        self._opening = opening
        self._spool = spool
        self._pid = os.getpid()
        self._open = spool is not None
        self._say = Voice()
        self._rows: deque[tuple[Any, ...]] = deque()
        self._rollouts: deque[tuple[int, int, Any]] = deque()
        self._step = -1
        self._ordinals = (-1, 0)
        self._logged = 0
        self._lost: deque[tuple[str, bool]] = deque()  # what was shed, and whether because it could not be used
        self._unusable: dict[str, int] = {}
        self._accepts = frozenset(opening.accepts) if opening else frozenset[str]()
        self._callbacks: dict[str, Callable[[], None]] = {}
        self._answered: frozenset[str] = frozenset()
        self._closing = threading.Event()
        self._written = threading.Event()
        self._tidied = False
        self._giving_up = threading.Event()
        self._courier: Courier | None = None
        self._threads: list[threading.Thread] = []
        if spool is not None:
            self._courier = Courier(spool, Transport(spool.url, token), self._say)
            self._threads = [threading.Thread(target=work, name=f"vitals-{name}", daemon=True) for name, work in self._work().items()]
            lifetime.watch(self)
            for thread in self._threads:
                thread.start()

    @classmethod
    def disabled(cls) -> Run:
        """A run that takes everything and keeps nothing."""
        return cls(None, None)

    @property
    def url(self) -> str | None:
        """The run's page, or None before the collector has answered."""
        return self._courier.page if self._courier else None

    @property
    def stats(self) -> Stats:
        """Counts so far."""
        if self._courier is None or self._spool is None:
            return Stats()
        dropped = self._spool.dropped
        shed_rows = self._spool.shed("rows")
        pending = max(0, self._logged - self._courier.rows - self._courier.refused_rows - shed_rows)
        return Stats(self._logged, self._courier.rows, pending, dropped, self._courier.refused)

    @property
    def should_stop(self) -> bool:
        """Whether somebody asked the run to stop; only ever true when it was started with ``accepts=["stop"]``."""
        return "stop" in self.requests

    @property
    def requests(self) -> frozenset[str]:
        """The open requests to this run among those it accepts."""
        return self._courier.requests & self._accepts if self._courier else frozenset()

    def on(self, request: str, callback: Callable[[], None]) -> None:
        """Call ``callback`` from within :meth:`log`, on the training thread, once for each ``request`` made; the request then counts as obeyed.

        The run must have been started with the request in ``accepts``.
        """
        given: tuple[Any, Any] = request, callback
        if not isinstance(given[0], str) or not callable(given[1]):
            self._say(f"on {given[0]!r:.60}", f"on takes a request and what to call for it, not {given[0]!r:.60} and {given[1]!r:.60}")
            return
        if request not in self._accepts and self._open:
            self._say(f"on {request}", f"the run does not accept {request!r}: start it with accepts=[{request!r}]")
        self._callbacks[request] = callback

    def log(self, values: Mapping[str, Any], step: int | None = None, hists: Mapping[str, Sequence[int]] | None = None) -> None:
        """Hand in the metrics of a step; returns in microseconds.

        ``step`` defaults to the one after the last. Values are numbers, 0-dimensional tensors included (those on an accelerator are copied
        there and read in the background); None is absent. ``hists`` holds counts over the bins of ``monitor.metrics.HISTOGRAMS``. Rows of
        the same step with different metrics complete each other.
        """
        if not self._open or self._foreign():
            return
        self._logged += 1
        try:
            self._step = self._step + 1 if step is None else use_step(step)
            kept = dict(values if type(values) is dict else use_mapping("values", values, "{'reward.task.mean': 0.5}"))
            if not _PLAIN.issuperset(map(type, kept.values())):
                kept = {name: _frozen(value) for name, value in kept.items()}
            self._rows.append((self._step, time.time(), kept, _copied(hists) if hists else {}))
            if len(self._rows) > MOST_QUEUED_ROWS:
                self._lost.append((f"{_kind(self._rows.popleft())}s", False))
            if self._callbacks and self.requests != self._answered:
                self._obey()
        except Exception as error:
            self._leave_out("row", error)

    def log_rollouts(self, step: int, rollouts: Iterable[wire.Rollout | Mapping[str, Any]]) -> None:
        """Hand in decoded samples of a step: ``Rollout`` objects or mappings with their fields, where turns may be (role, text) pairs.

        Ordinals are counted per step when they are missing.
        """
        if not self._open or self._foreign():
            return
        try:
            step = use_step(step)
            count = self._ordinals[1] if self._ordinals[0] == step else 0
            for rollout in _several(rollouts):
                self._rollouts.append((step, count, rollout))
                count += 1
            self._ordinals = (step, count)
            while len(self._rollouts) > MOST_QUEUED_ROLLOUTS:
                self._rollouts.popleft()
                self._lost.append(("rollouts", False))
        except Exception as error:
            self._leave_out("rollout", error)

    def event(self, kind: str, step: int | None = None, **detail: Any) -> None:
        """Note that something happened: ``resume``, ``regime`` (a changed setting), ``checkpoint``, ``skip``, ``note`` ..."""
        if not self._open or self._foreign():
            return
        try:
            self._rows.append((time.time(), use_kind(kind), None if step is None else use_step(step), detail))
        except Exception as error:
            self._leave_out("event", error)

    def quiet(self, why: str, minutes: float | None = None) -> AbstractContextManager[Any]:
        """Announce that no step will end for so many ``minutes`` (None: until the next row), so that nobody is told of the silence.

        As a context manager it also says when that is over::

            with run.quiet("evaluation", minutes=20):
                evaluate()
        """
        over, step = ExitStack(), self._step if self._step >= 0 else None
        try:
            if minutes is None:
                self.event("pause", step, why=why)
            else:
                self.event("expect", step, seconds=use_seconds("minutes", minutes, "minutes") * 60, why=why)
            over.callback(self.event, "unpause", step, why=why)
        except Unusable as error:
            self._say("quiet", f"{error}; the silence of {why!r:.60} was not announced")
        return over

    def finish(self, state: str = "finished", reason: str | None = None, timeout: float = FINISH_TIMEOUT_S) -> None:
        """End the run with one of ``finished``, ``crashed``, ``killed``, ``stopped``; waits up to ``timeout`` seconds for what is left.

        What could not be sent stays in the spool; the next run, or ``vitals spool send``, sends it. Calling it again does nothing.
        """
        if not self._open or self._foreign():
            return
        self._open = False
        assert self._spool is not None and self._opening is not None and self._courier is not None
        if state not in wire.END_STATES:
            reason, state = f"{state}: {reason}" if reason else state, "finished"
        try:
            wait = 0.0 if timeout == 0 else use_seconds("timeout", timeout, "seconds")
        except Exception as error:
            wait = FINISH_TIMEOUT_S
            self._say("finish", f"{error}; {wait:g} s are taken")
        deadline = time.monotonic() + wait
        self._rows.append((state, None if reason is None else str(reason)))
        self._closing.set()
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._giving_up.set()
        opening = self._opening
        if missing := self._missing(self._spool, self._courier):
            self._say("missing", f"of {opening.name!r} {missing}")
        remember(self._spool.folder.parent, opening.project, opening.name, run=self.uid, attempt=self.attempt, state=state)
        if not self._courier.done:
            waiting = self._spool.pending_bytes
            self._say("left", f"{waiting} bytes of {opening.name!r} wait in {self._spool.folder}; 'vitals spool send' sends them")
        self._spool.close(remove=self._courier.done)
        lifetime.forget(self)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.finish(*lifetime.end_of(error))

    def _work(self) -> dict[str, Callable[[], None]]:
        return {"writer": self._write, "sender": self._send}

    def _foreign(self) -> bool:
        """Whether this is a forked child of the process that owns the run; says so once."""
        if os.getpid() == self._pid:
            return False
        self._open = False
        self._say("fork", f"the run belongs to process {self._pid}; its child {os.getpid()} logs nothing. Start a run of its own in the child")
        return True

    def _leave_out(self, what: str, error: Exception) -> None:
        """Count a record that cannot be taken, and tell each reason once."""
        self._lost.append((f"{what}s", True))
        argument = error.argument if isinstance(error, Unusable) else type(error).__name__
        self._say(
            f"{what} {argument}",
            f"{'an' if what[0] == 'e' else 'a'} {what} was left out: {error if isinstance(error, ValueError) else f'{argument}: {error}'}",
        )

    def _missing(self, spool: Spool, courier: Courier) -> str:
        """How many records will never be at the collector, by kind and reason; empty when none is missing."""
        unusable = {kind: self._unusable.get(kind, 0) for kind in KINDS}
        reasons = {
            "could not be used": unusable,
            "found no room in memory or on disk": {kind: spool.shed(kind) - unusable[kind] for kind in KINDS},
            "were refused by the collector": {"rows": courier.refused_rows, "other records": courier.refused - courier.refused_rows},
        }
        told = {
            why: ", ".join(f"{number} {kind if number > 1 else kind[:-1]}" for kind, number in counts.items() if number > 0)
            for why, counts in reasons.items()
        }
        return "; ".join(f"{what} {why}" for why, what in told.items() if what)

    def _obey(self) -> None:
        asked = self.requests
        for request in asked - self._answered:
            if callback := self._callbacks.get(request):
                self._answered |= {request}
                try:
                    callback()
                except Exception as error:
                    self._say(f"obey {request}", f"what was to be called for {request!r} failed, it stays open: {type(error).__name__}: {error}")
                else:
                    self.event(REQUEST_DONE, self._step, request=request)
        self._answered &= asked

    def _write(self) -> None:
        """The writer thread: queue to spool."""
        assert self._spool is not None
        synced, last = time.monotonic(), False
        while not last:
            last = self._closing.wait(FLUSH_S)
            if self._drain() or self._spool.unsettled:
                self._written.set()
            if self._spool.problem:
                self._say("disk", f"the spool cannot be written ({self._spool.problem}); rows wait in memory and oldest rollouts are dropped first")
            if last or time.monotonic() - synced >= SYNC_S:
                self._spool.sync()
                synced = time.monotonic()

    def _drain(self) -> int:
        """Move what is queued to the spool; returns how many records."""
        assert self._spool is not None
        moved = 0
        while self._rollouts or self._rows or self._lost:
            lines: list[bytes] = []
            while len(lines) < ROWS_PER_WRITE and (queue := self._rollouts or self._rows):
                record = queue.popleft()
                try:
                    lines.append(_line(self._fitting(record)))
                except Exception as error:
                    self._leave_out(_kind(record), error)
                # let a training thread that waits for the interpreter have it now, not after the switch interval
                time.sleep(0)
            while self._lost:
                kind, unusable = self._lost.popleft()
                self._unusable[kind] = self._unusable.get(kind, 0) + unusable
                self._spool.count_shed(kind, 1)
            self._spool.append(lines)
            moved += len(lines)
        if not moved and self._spool.unsettled:
            self._spool.append(())
        return moved

    def _fitting(self, record: tuple[Any, ...]) -> tuple[Any, ...]:
        """``record`` without the values of a row that are no numbers or have no usable name; they are counted, and each name is told once.
        Raises ValueError when nothing is left of it."""
        if len(record) != 4 or isinstance(record[1], str):
            return record
        kept, shapes, left_out = encode.usable(record[2], record[3])
        for name, problem in left_out:
            self._lost.append(("values", True))
            self._say(f"value {name}", f"{name!r} is left out of a row: {problem}")
        if left_out and not kept and not shapes:
            raise ValueError("nothing in it could be used")
        return (*record[:2], kept, shapes)

    def _send(self) -> None:
        """The sender thread: spool to collector, what an earlier process of the run left behind first."""
        assert self._courier is not None and self._spool is not None
        self._describe()
        self._send_earlier_attempts()
        courier, wake, beaten = self._courier, self._written, time.monotonic()
        while not self._giving_up.is_set():
            wake.clear()
            try:
                pause = courier.step()
            except Exception as error:
                self._say("sender", f"sending failed unexpectedly ({type(error).__name__}: {error}); it is tried again")
                pause = 5.0
            if courier.done:
                break
            if courier.page is not None and not self._tidied:
                self._tidied = True
                threading.Thread(target=self._send_other_runs, name="vitals-leftovers", daemon=True).start()
            if pause is None:
                if time.monotonic() - beaten > BEAT_S:
                    courier.beat()
                    beaten = time.monotonic()
                wake.wait(BEAT_S / 4)
            elif pause > 0:
                self._sleep(pause)
            else:
                beaten = time.monotonic()
        courier.transport.close()

    def _sleep(self, pause: float) -> None:
        """Wait before trying again; the end of the run cuts the wait short once."""
        until = time.monotonic() + pause
        if not self._closing.is_set():
            self._closing.wait(pause)
        else:
            self._giving_up.wait(min(max(0.0, until - time.monotonic()), 1.0))

    def _describe(self) -> None:
        """Complete the start with what the process runs on, which takes too long for ``start`` itself."""
        assert self._spool is not None and self._opening is not None
        try:
            from monitor.client.environment import environment

            self._opening.environment = environment(self._opening.config)
            self._spool.describe(self._opening, self._spool.url)
        except OSError as error:
            self._say("disk", f"{self._spool.folder} cannot be written ({error.strerror}); rows wait in memory")
        except Exception as error:
            self._say("environment", f"the environment could not be described ({type(error).__name__}: {error})")

    def _send_other_runs(self) -> None:
        """What dead processes of other runs left for the same collector."""
        assert self._spool is not None and self._courier is not None
        from monitor.client import leftovers

        try:
            leftovers.send(self._spool.folder.parent, only_for=self._spool.url, token=self._courier.transport.token, stopped=self._closing.is_set)
        except Exception as error:
            self._say("leftovers", f"other runs' rows stay in {self._spool.folder.parent} ({type(error).__name__}: {error}); try 'vitals spool send'")

    def _send_earlier_attempts(self) -> None:
        """Attempts of the same run get their segments in the order in which they were started."""
        assert self._spool is not None and self._courier is not None
        for folder in left_behind(self._spool.folder.parent):
            if (spool := Spool.adopt(folder)) is not None:
                delivered = False
                if spool.opening.get("run") == self.uid:
                    courier = Courier(spool, self._courier.transport, self._say)
                    delivered = deliver(courier, float("inf"), stopped=self._giving_up.is_set)
                spool.close(remove=delivered)


def _frozen(value: Any) -> Any:
    """A number that later changes to ``value`` cannot alter; a tensor on an accelerator is copied there and not waited for."""
    kind = type(value)
    if kind is float or kind is int or value is None:
        return value
    if (device := getattr(value, "device", None)) is not None and getattr(device, "type", "cpu") != "cpu":
        return value.detach().clone()
    return encode.number(value)


def _copied(hists: Any) -> dict[Any, list[Any]]:
    """``hists`` as it is now; counts that are no sequence are kept empty, which no histogram takes."""
    shapes = use_mapping("hists", hists, "{'adv.hist': [0, 3, ...]}")
    return {name: list(counts) if isinstance(counts, Iterable) else [] for name, counts in shapes.items()}


def _several(rollouts: Any) -> Iterable[Any]:
    if isinstance(rollouts, (str, Mapping, wire.Rollout)) or not isinstance(rollouts, Iterable):
        raise Unusable("rollouts", f"rollouts must be a list of Rollout objects or mappings, not {type(rollouts).__name__}")
    return rollouts


def _kind(record: tuple[Any, ...]) -> str:
    return {2: "end", 3: "rollout"}.get(len(record)) or ("event" if isinstance(record[1], str) else "row")


def _line(record: tuple[Any, ...]) -> bytes:
    if len(record) == 3:
        return encode.rollout_line(*record)
    if len(record) == 2:
        return encode.end_line(record[0], time.time(), record[1])
    return encode.event_line(*record) if isinstance(record[1], str) else encode.row_line(*record)
