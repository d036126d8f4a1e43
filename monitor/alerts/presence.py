"""Runs that fall silent: how long a run may be quiet, and what is said when it is for longer. Pure.

A run is judged against its own cadence: the median of its latest step times. *Stalled*: the client still speaks and no step ends. *Lost*: the
client is silent too. *Crashed*: the client said so. Silence that was announced (``expect`` with ``seconds``, or ``pause``) is none. Before the
first step of an attempt there is no cadence: a client that speaks may load and compile for long, one that does not is lost.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from statistics import median
from typing import Any

from monitor.detect.contract import Finding

GAPS = 20
"""Step times that make the cadence."""

WARN_TIMES, WARN_FLOOR_S = 5.0, 120.0
CRITICAL_TIMES, CRITICAL_FLOOR_S = 10.0, 600.0
"""A run may be silent for so many median step times, at least so many seconds."""

START_WARN_S, START_CRITICAL_S = 1800.0, 7200.0
"""A client that speaks may take so many seconds to end the first step of an attempt."""

SPEECHLESS_S = 90.0
"""A client tells that it lives every 30 s; after three that did not come it counts as silent."""


@dataclass(frozen=True, slots=True)
class Pace:
    """``gaps``: the latest step times in seconds; ``step`` and ``at``: the newest step and its time; ``heard``: when the run last said anything.

    Silence is expected ``until`` (infinity: until the next row) because of ``why``. All times are those of the run's own clock.
    """

    gaps: tuple[float, ...] = ()
    step: int | None = None
    at: float = 0.0
    heard: float = 0.0
    until: float = 0.0
    why: str = ""

    @property
    def usual(self) -> float | None:
        """Seconds that a step usually takes; None before there are three."""
        return median(self.gaps) if len(self.gaps) >= 3 else None

    @property
    def announced(self) -> float:
        """Seconds of expected silence after the last word."""
        return max(0.0, self.until - self.heard)

    def allowed(self, severity: str) -> float:
        """Seconds of silence after which the run is reported with ``severity`` (warning or critical); infinite while it is paused."""
        times, floor = (WARN_TIMES, WARN_FLOOR_S) if severity == "warning" else (CRITICAL_TIMES, CRITICAL_FLOOR_S)
        return max(floor, times * (self.usual or 0.0)) + self.announced

    def allowed_to_start(self, severity: str, *, lives: bool) -> float:
        """The same before the first row of an attempt; ``lives``: its client speaks."""
        silence = (WARN_FLOOR_S, CRITICAL_FLOOR_S) if not lives else (START_WARN_S, START_CRITICAL_S)
        return silence[severity != "warning"] + self.announced


def stepped(pace: Pace, step: int, at: float) -> Pace:
    """The pace after a row, which ends a pause. Rows of one step, and steps that a resume lives again, make no step time."""
    pace = replace(pace, heard=at) if math.isfinite(pace.until) else replace(pace, heard=at, until=0.0, why="")
    if pace.step is None or step <= pace.step or at <= pace.at:
        return replace(pace, step=step, at=max(at, pace.at) if step == pace.step else at)
    gap = (at - pace.at) / (step - pace.step) if step - pace.step <= 1 else at - pace.at
    return replace(pace, gaps=(*pace.gaps[1 - GAPS :], gap), step=step, at=at)


def announced(pace: Pace, kind: str, detail: Mapping[str, Any], at: float) -> Pace:
    """The pace after an event: ``pause`` announces silence until the next row, ``expect`` so many ``seconds``, ``unpause`` ends either."""
    seconds, why, pace = detail.get("seconds"), str(detail.get("why") or ""), replace(pace, heard=at)
    if kind == "pause":
        return replace(pace, until=math.inf, why=why or "paused")
    if kind == "expect" and isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds > 0:
        return replace(pace, until=at + seconds, why=why)
    return replace(pace, until=0.0, why="") if kind == "unpause" else pace


def load(tree: Mapping[str, Any] | None) -> Pace:
    """A pace from the JSON values of :func:`dump`; what another version wrote may lack fields."""
    known = {field.name: tree[field.name] for field in fields(Pace) if field.name in tree} if tree else {}
    if "gaps" in known:
        known["gaps"] = tuple(known["gaps"])
    if "until" in known:
        known["until"] = math.inf if known["until"] is None else known["until"]
    return Pace(**known)


def dump(pace: Pace) -> dict[str, Any]:
    return asdict(pace) | {"gaps": list(pace.gaps), "until": pace.until if math.isfinite(pace.until) else None}


def unstarted(pace: Pace, *, since_s: float, unheard_s: float, severity: str) -> Finding:
    """An attempt was opened ``since_s`` seconds ago and has sent no row; its client was last heard ``unheard_s`` seconds ago."""
    lives = unheard_s <= SPEECHLESS_S
    return Finding(
        detector="stalled" if lives else "lost",
        severity=severity,
        step=pace.step or 0,
        metric="perf.step_time_s",
        title=f"No step has ended since the run was started {duration(since_s)} ago" + ("" if lives else ", and the client is silent"),
        evidence=f"The run was opened {duration(since_s)} ago and has sent no row; its client was heard {duration(unheard_s)} ago.",
        cause="the process lives and has not ended its first step: loading, compiling, or a rendezvous that waits for a missing rank"
        if lives
        else "the process ended before its first step (a failed start, out of memory, preemption), or its machine or network went away",
        advice="Look at the job's processes (py-spy dump) and its log; a start that takes long can be announced."
        if lives
        else "Look at the scheduler and the end of the job's log.",
        value=since_s,
        limit=pace.allowed_to_start(severity, lives=lives),
        since_step=pace.step,
        refutation="rows of this run arrive after all",
    )


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
