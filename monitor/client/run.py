"""A training run that logs: :func:`start` opens it, :class:`Run` takes its rows and a background thread sends them."""

from __future__ import annotations

import os
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from monitor import wire
from monitor.client.transport import Transport

DEFAULT_URL = "http://127.0.0.1:8900"
FLUSH_S = 0.2


def start(
    project: str,
    name: str,
    config: Mapping[str, Any] | None = None,
    algorithm: str | None = None,
    *,
    signal: str = "reward",
    task_reward: str | None = None,
    aux_rewards: Sequence[str] = (),
    tags: Sequence[str] = (),
    resume: str = "auto",
    url: str | None = None,
    token: str | None = None,
    spool_dir: str | Path | None = None,
    accepts: Sequence[str] = (),
    rank: int | None = None,
) -> Run:
    """Open a run and return it; rows are sent in the background."""
    if signal not in wire.SIGNALS:
        raise ValueError(f"signal must be one of {', '.join(wire.SIGNALS)}, not {signal!r}")
    if (int(os.environ.get("RANK", "0")) if rank is None else rank) != 0:
        return Run.disabled()
    opening = wire.RunStart(
        run=uuid.uuid4().hex,
        attempt=uuid.uuid4().hex,
        project=project,
        name=name,
        started_at=time.time(),
        algorithm=algorithm,
        signal=signal,
        task_reward=task_reward,
        aux_rewards=list(aux_rewards),
        config=dict(config or {}),
        tags=list(tags),
        accepts=list(accepts),
    )
    return Run(opening, Transport(url or os.environ.get("VITALS_URL", DEFAULT_URL), token or os.environ.get("VITALS_TOKEN")))


class Run:
    """An open run. No method raises or waits for the collector, apart from :meth:`finish` within its timeout."""

    def __init__(self, opening: wire.RunStart | None, transport: Transport | None) -> None:
        self._opening = opening
        self._transport = transport
        self._queue: deque[Any] = deque()
        self._step = -1
        self._sent = 0
        self._dropped = 0
        self._requests: set[str] = set()
        self._closing = threading.Event()
        self._deadline = float("inf")
        self._thread: threading.Thread | None = None
        self.url: str | None = None
        if opening is not None:
            self._thread = threading.Thread(target=self._work, name="vitals", daemon=True)
            self._thread.start()

    @classmethod
    def disabled(cls) -> Run:
        """A run that takes everything and sends nothing."""
        return cls(None, None)

    @property
    def should_stop(self) -> bool:
        """Whether somebody asked the run to stop, and it was started with ``accepts=("stop",)``."""
        return "stop" in self._requests

    @property
    def stats(self) -> dict[str, int]:
        return {"sent": self._sent, "pending": len(self._queue), "dropped": self._dropped}

    def log(self, values: Mapping[str, Any], step: int | None = None, hists: Mapping[str, Sequence[int]] | None = None) -> None:
        """Hand in the metrics of a step (default: the step after the last one). Returns at once."""
        if self._thread is None:
            return
        self._step = self._step + 1 if step is None else step
        self._queue.append(("rows", wire.Row(self._step, time.time(), dict(values), {k: list(v) for k, v in (hists or {}).items()})))

    def log_rollouts(self, step: int, rollouts: Iterable[wire.Rollout]) -> None:
        """Hand in decoded samples of a step."""
        if self._thread is not None:
            self._queue.extend(("rollouts", rollout) for rollout in rollouts)

    def event(self, kind: str, step: int | None = None, **detail: Any) -> None:
        """Note that something happened."""
        if self._thread is not None:
            self._queue.append(("events", wire.Event(time.time(), kind, step, detail)))

    def finish(self, state: str = "finished", reason: str | None = None, timeout: float = 30.0) -> None:
        """End the run and send what is left, within ``timeout`` seconds."""
        if self._thread is None:
            return
        self._end = (state, reason)
        self._deadline = time.monotonic() + timeout
        self._closing.set()
        self._thread.join(timeout + 1.0)
        self._thread = None

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self.finish()
        else:
            self.finish("crashed", f"{type(error).__name__}: {error}"[:500])

    def _work(self) -> None:
        opening, transport = self._opening, self._transport
        assert opening is not None and transport is not None
        seq = 0
        warned = False
        while time.monotonic() < self._deadline:
            self._closing.wait(FLUSH_S)
            if self.url is None:
                answer = transport.post(f"{wire.API}/runs", wire.to_json(opening))
                if not answer.ok:
                    if not warned:
                        warned = True
                        print(f"vitals: no collector at {transport.url} ({answer.problem}); rows are kept and sent when it answers", file=sys.stderr)
                    continue
                self.url = str(answer.body.get("url"))
            while self._queue:
                seq += 1
                batch = wire.Batch(opening.attempt, seq)
                for _ in range(min(len(self._queue), 500)):
                    kind, item = self._queue.popleft()
                    getattr(batch, kind).append(item)
                while not (answer := transport.post(f"{wire.API}/runs/{opening.run}/batches", wire.to_json(batch))).ok:
                    if answer.permanent or time.monotonic() > self._deadline:
                        print(f"vitals: the collector refused a batch: {answer.problem}", file=sys.stderr)
                        break
                    time.sleep(0.5)
                self._sent += len(batch.rows)
                self._requests.update(answer.body.get("requests", ()))
            if self._closing.is_set():
                state, reason = self._end
                transport.post(f"{wire.API}/runs/{opening.run}/finish", wire.to_json(wire.RunEnd(opening.attempt, state, time.time(), reason)))
                return
