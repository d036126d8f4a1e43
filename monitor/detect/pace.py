"""Detectors of pace: slow steps and growing staleness. Whether a run has stopped arriving at all needs a clock: see :func:`stalled`."""

from __future__ import annotations

from monitor.detect import cause, stats
from monitor.detect.contract import Detector, Finding, Parameter, State
from monitor.detect.view import View

STALL_WARNING, STALL_CRITICAL = 5.0, 10.0
"""Multiples of a run's own median interval between rows after which it is late, and after which it is called stalled."""
STALL_FLOOR_S = 120.0


def stalled(waited_s: float, median_interval_s: float) -> str | None:
    """``warning`` or ``critical`` for a running run whose last row came ``waited_s`` seconds ago; None while that is usual for it."""
    for severity, factor in (("critical", STALL_CRITICAL), ("warning", STALL_WARNING)):
        if waited_s >= max(STALL_FLOOR_S, factor * median_interval_s):
            return severity
    return None


def _slowdown(view: View, memory: State) -> tuple[State, Finding | None]:
    now, series = view.now("perf.step_time_s"), view.series("perf.step_time_s")
    if now is None or series.n < 12:
        return memory, None
    usual, factor = stats.median(series.x[:-3]), view.limit(SLOWDOWN, "factor")
    if usual <= 0 or min(series.x[-3:]) < factor * usual:
        return memory, None
    return memory, view.finding(
        SLOWDOWN,
        "information",
        "perf.step_time_s",
        now,
        title="Steps have become slow",
        evidence=f"Step time {now:.3g} s on this row, at least {factor:g} times the usual {usual:.3g} s on the last three.",
        why=cause.SLOW,
        baseline=usual,
        limit=factor * usual,
    )


SLOWDOWN = Detector(
    id="slowdown",
    organ="pace",
    title="Slow steps",
    needs=(("perf.step_time_s",),),
    rule="Three steps in a row take three times the usual time. Information: slow is not ill.",
    formula="step time >= factor * median of the rows before, on three rows",
    source="a run's own median, because step times span four orders of magnitude",
    remedy=cause.SLOW.remedy,
    judge=_slowdown,
    parameters=(Parameter("factor", 3, "-", "multiple of the usual step time"),),
)


def _staleness(view: View, memory: State) -> tuple[State, Finding | None]:
    now, series = view.now("stale.mean"), view.series("stale.mean")
    if now is None or series.n < 8:
        return memory, None
    usual, least = stats.median(series.first[: max(4, len(series.first) // 2)]), view.limit(STALENESS, "versions")
    if now < usual + least or now < 2 * usual or min(series.x[-3:]) < usual + least:
        return memory, None
    strained = "weights" in view.strains or "mismatch" in view.strains
    return memory, view.finding(
        STALENESS,
        "watch" if strained else "information",
        "stale.mean",
        now,
        title="Rollouts are getting stale",
        evidence=f"Rollouts are {now:.3g} versions old on average; it was {usual:.3g}.",
        why=cause.STALE,
        baseline=usual,
        limit=usual + least,
    )


STALENESS = Detector(
    id="staleness",
    organ="pace",
    title="Staleness grows",
    needs=(("stale.mean",),),
    rule="Rollouts are at least four versions older than when the run began. What that does to the weights is judged under policy.",
    formula="stale.mean >= start + versions and >= 2 * start on three rows",
    source="off-policy error grows with staleness; whether it hurts shows in the weights",
    remedy=cause.STALE.remedy,
    judge=_staleness,
    parameters=(Parameter("versions", 4, "versions", "growth of the mean staleness that is worth knowing"),),
)
