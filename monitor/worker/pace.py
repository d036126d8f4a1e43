"""How a worker paces itself, and how it speaks of errors."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, field

from monitor.deliver.retry import Policy


@dataclass(frozen=True, slots=True)
class Pace:
    """``rows``: at most so many rows and events per transaction. ``idle_s``: pause when there is nothing to do. ``lease_s``: how long a
    delivery belongs to the worker that took it, longer than any send. ``sends``: at once per channel. When more than ``crowd`` wait for a channel
    that takes one at a time, a digest replaces them, and nothing more is sent there for ``digest_s``. ``grace_s``: for sends under way when
    asked to stop. Judging a run that failed is tried again after ``retry_s``, doubled each time up to ``retry_cap_s``."""

    rows: int = 256
    idle_s: float = 0.2
    lease_s: float = 30.0
    sends: int = 8
    crowd: int = 10
    digest_s: float = 10.0
    grace_s: float = 5.0
    retry_s: float = 10.0
    retry_cap_s: float = 3600.0
    policy: Policy = field(default_factory=Policy)


def named(error: BaseException) -> str:
    """An error as one line that a maintainer can act on: kind, first line and the place in our code."""
    ours = [frame for frame in traceback.extract_tb(error.__traceback__) if "monitor" in frame.filename]
    place = f" (at {ours[-1].filename.rpartition('/monitor/')[2]}:{ours[-1].lineno})" if ours else ""
    line = (str(error).splitlines() or [""])[0][:300]
    return f"{type(error).__name__}: {line}{place}" if line else f"{type(error).__name__}{place}"
