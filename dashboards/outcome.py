"""Where a metric of a run ended, and how good it ever was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from monitor.metrics import describe
from monitor.store.series import Curve

TAIL = 10
"""Points whose mean is the last value."""

Values = dict[str, dict[int, float]]
"""Metric -> step -> finite value, of each step its newest attempt."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """``last`` is the mean of the last ten finite points and ``best`` the best of all, which only metrics with a direction have; both None where
    nothing finite was logged. ``bad`` is the newest value where that is not finite."""

    last: float | None
    best: float | None
    bad: str | None = None


def lived(attempts: Mapping[int, Curve]) -> tuple[dict[int, float], str | None]:
    """The finite values of a metric without the steps that a later attempt lived again, and the newest value where it is not finite."""
    values: dict[int, float] = {}
    bad: str | None = None
    for number in sorted(attempts):
        curve = attempts[number]
        if not curve.x:
            continue
        values = {step: value for step, value in values.items() if step < curve.x[0]}
        values |= {step: value for step, value in zip(curve.x, curve.y, strict=True) if value is not None}
        bad = curve.bad[-1][1] if curve.y[-1] is None and curve.bad and curve.bad[-1][0] == curve.x[-1] else None
    return values, bad


def outcome(metric: str, attempts: Mapping[int, Curve]) -> Outcome | None:
    """What a metric came to; None where it was never logged."""
    values, bad = lived(attempts)
    if not values:
        return None if bad is None else Outcome(None, None, bad)
    ordered = [values[step] for step in sorted(values)]
    tail = ordered[-TAIL:]
    healthy = describe(metric).healthy
    best = max(ordered) if healthy == "up" else min(ordered) if healthy == "down" else None
    return Outcome(sum(tail) / len(tail), best, bad)
