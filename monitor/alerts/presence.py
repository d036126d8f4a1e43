"""Runs that fall silent: how long a run may be quiet, and what is said when it is for longer. Pure.

A run is judged against its own cadence: the median of its latest step times. *Stalled*: the client still speaks and no step ends. *Lost*: the
client is silent too. *Crashed*: the client said so. A pause that was announced (``expect`` with ``seconds``, or ``pause``) is no silence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from monitor.detect.contract import Finding

GAPS = 20
"""Step times that make the cadence."""

WARN_TIMES, WARN_FLOOR_S = 5.0, 120.0
CRITICAL_TIMES, CRITICAL_FLOOR_S = 10.0, 600.0
"""A run may be silent for so many median step times, at least so many seconds."""

SPEECHLESS_S = 90.0
"""A client tells that it lives every 30 s; after three that did not come it counts as silent."""


@dataclass(frozen=True, slots=True)
class Pace:
    """``gaps``: the latest step times in seconds; ``step`` and ``at``: the newest step and its time; ``announced``: seconds of expected silence."""

    gaps: tuple[float, ...] = ()
    step: int | None = None
    at: float = 0.0
    announced: float = 0.0

    @property
    def usual(self) -> float | None:
        """Seconds that a step usually takes; None before there are three."""
        return median(self.gaps) if len(self.gaps) >= 3 else None

    def allowed(self, severity: str) -> float:
        """Seconds of silence after which the run is reported with ``severity`` (warning or critical); infinite while it is paused."""
        times, floor = (WARN_TIMES, WARN_FLOOR_S) if severity == "warning" else (CRITICAL_TIMES, CRITICAL_FLOOR_S)
        return max(floor, times * (self.usual or 0.0)) + self.announced


def stepped(pace: Pace, step: int, at: float) -> Pace:
    """The pace after a row. Rows of one step, and steps that a resume lives again, make no step time."""
    if pace.step is None or step <= pace.step or at <= pace.at:
        return Pace(pace.gaps, step, max(at, pace.at) if step == pace.step else at)
    gap = (at - pace.at) / (step - pace.step) if step - pace.step <= 1 else at - pace.at
    return Pace((*pace.gaps[1 - GAPS :], gap), step, at)


def announced(pace: Pace, kind: str, detail: Mapping[str, Any]) -> Pace:
    """The pace after an event: ``pause`` announces silence without end, ``expect`` so many ``seconds``, ``unpause`` ends either."""
    seconds = detail.get("seconds")
    if kind == "pause":
        return Pace(pace.gaps, pace.step, pace.at, math.inf)
    if kind == "expect" and isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds > 0:
        return Pace(pace.gaps, pace.step, pace.at, float(seconds))
    return Pace(pace.gaps, pace.step, pace.at) if kind == "unpause" else pace


def load(tree: Mapping[str, Any] | None) -> Pace:
    """A pace from the JSON values of :func:`dump`."""
    if not tree:
        return Pace()
    return Pace(tuple(tree["gaps"]), tree["step"], tree["at"], math.inf if tree["announced"] is None else tree["announced"])


def dump(pace: Pace) -> dict[str, Any]:
    endless = math.isinf(pace.announced)
    return {"gaps": list(pace.gaps), "step": pace.step, "at": pace.at, "announced": None if endless else pace.announced}


def silent(pace: Pace, *, since_s: float, unheard_s: float, severity: str) -> Finding:
    """No row for ``since_s`` seconds; the client was last heard ``unheard_s`` seconds ago."""
    usual = "" if pace.usual is None else f"; a step of this run usually takes {duration(pace.usual)}"
    lives = unheard_s <= SPEECHLESS_S
    heard = f"its client was heard {duration(unheard_s)} ago"
    return Finding(
        detector="stalled" if lives else "lost",
        severity=severity,
        step=pace.step or 0,
        metric="perf.step_time_s",
        title=f"No step has ended for {duration(since_s)}" + ("" if lives else ", and the client is silent"),
        evidence=f"The last row was step {pace.step or 0:,}, {duration(since_s)} ago{usual}; {heard}.",
        cause="the process lives but does not end a step: a hung sampler or environment, a collective that waits for a dead rank"
        if lives
        else "the process was killed (out of memory, preemption), or its machine or network went away",
        advice="Look at the job's processes (py-spy dump) and at the devices' load; an evaluation or checkpoint that takes long can be announced."
        if lives
        else "Look at the scheduler and the machine's log; if it was preempted, resume from the last checkpoint under the same run.",
        value=since_s,
        baseline=pace.usual,
        limit=pace.allowed(severity) if math.isfinite(pace.allowed(severity)) else None,
        since_step=pace.step,
        refutation="rows of this run arrive after all",
    )


def crashed(pace: Pace, state: str, reason: str | None) -> Finding:
    """The client reported that the run ended as ``crashed`` or ``killed``."""
    said = (reason or "").strip().splitlines()
    return Finding(
        detector="crashed",
        severity="critical",
        step=pace.step or 0,
        metric="perf.step_time_s",
        title="The run crashed" if state == "crashed" else "The run was killed",
        evidence=f"The client ended as {state} after step {pace.step or 0:,}" + (f": {said[-1][:500]}" if said else "."),
        cause="the training process raised an exception" if state == "crashed" else "the training process was told to end from outside",
        advice="Read the end of the job's log; resume from the last checkpoint under the same run and this alert closes itself.",
        value=math.nan,
        since_step=pace.step,
    )


def duration(seconds: float) -> str:
    """``8.2 s``, ``130 s``, ``12 min``, ``3.5 h``: as coarse as it can be told."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 180:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
