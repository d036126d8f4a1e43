"""What a demo run did, read from its task reward alone: did it learn, did it break, and at which step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

WINDOW = 5
LEARNED_FROM = 0.65
LEARNED_TO = 0.85

Curve = Sequence[tuple[int, float]]
"""(step, task reward in [0, 1]) in rising steps."""


def trailing_means(curve: Curve) -> list[tuple[int, float]]:
    """(step, mean of that step and the four before it), from the fifth point on."""
    values = [value for _, value in curve]
    return [(curve[i][0], math.fsum(values[i - WINDOW + 1 : i + 1]) / WINDOW) for i in range(WINDOW - 1, len(curve))]


def learned(curve: Curve) -> bool:
    """Whether the mean of the first five steps is at most .65 and that of the last five at least .85."""
    means = trailing_means(curve)
    return len(means) > WINDOW and means[0][1] <= LEARNED_FROM and means[-1][1] >= LEARNED_TO


def damage_step(curve: Curve) -> int | None:
    """The first step whose trailing mean is at most half of the best trailing mean before it; None while the run stands."""
    best = -math.inf
    for step, mean in trailing_means(curve):
        if best > 0 and mean <= best / 2:
            return step
        best = max(best, mean)
    return None


@dataclass(frozen=True, slots=True)
class Alarm:
    """A warning or worse: its detector and the step at which it was raised."""

    detector: str
    severity: str
    step: int


def in_time(alarms: Sequence[Alarm], damage: int | None) -> list[Alarm]:
    """The alarms raised before the damage; none of them while there is no damage to be early for."""
    return [alarm for alarm in alarms if damage is not None and alarm.step < damage]
