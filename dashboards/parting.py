"""Where two runs part: the first step from which they differ beyond their noise, metric by metric."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

WINDOW = 5
THRESHOLD = 5.0
"""Standard errors of a window's mean difference."""

LEAST_SHARE = 0.05
"""A difference smaller than this share of the metric's own spread does not matter, however certain it is."""

PERSISTS = 0.6
"""Share of the later windows that must differ too: a difference that heals is not where runs part."""

LEAST_POINTS = 12


@dataclass(frozen=True, slots=True)
class Parting:
    """From ``step`` on the runs differ in ``metric``, by ``size`` of the metric's spread on average."""

    metric: str
    step: int
    size: float


def parting(metric: str, one: Mapping[int, float], other: Mapping[int, float]) -> Parting | None:
    """Where two series (step -> finite value) part, or None. Needs at least 12 common steps.

    The noise is the median absolute deviation of the difference's increments, which a slow drift does not enter.
    """
    steps = sorted(one.keys() & other.keys())
    if len(steps) < LEAST_POINTS:
        return None
    gap = [other[step] - one[step] for step in steps]
    spread = _spread([*(one[step] for step in steps), *(other[step] for step in steps)])
    if spread == 0:
        return None
    increments = [after - before for before, after in pairwise(gap)]
    middle = median(increments)
    noise = median(abs(each - middle) for each in increments) / 0.6745 / math.sqrt(2)
    limit = max(THRESHOLD * noise / math.sqrt(WINDOW), LEAST_SHARE * spread)
    means = [math.fsum(gap[i : i + WINDOW]) / WINDOW for i in range(len(gap) - WINDOW + 1)]
    apart = [abs(mean) > limit for mean in means]
    for place in range(len(apart) - 2):
        rest = apart[place:]
        if all(apart[place : place + 3]) and sum(rest) >= PERSISTS * len(rest):
            onset = next((i for i in range(place, place + WINDOW) if abs(gap[i]) > limit), place)
            return Parting(metric, steps[onset], abs(math.fsum(gap[onset:]) / len(gap[onset:])) / spread)
    return None


def partings(metrics: Sequence[str], one: Mapping[str, Mapping[int, float]], other: Mapping[str, Mapping[int, float]]) -> list[Parting]:
    """Every metric in which two runs part, the earliest first."""
    found = [parting(metric, one[metric], other[metric]) for metric in metrics if metric in one and metric in other]
    return sorted((each for each in found if each is not None), key=lambda each: (each.step, -each.size))


def _spread(values: Sequence[float]) -> float:
    """From the 5th to the 95th percentile."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(0.95 * len(ordered)) - 1)] - ordered[math.floor(0.05 * len(ordered))]
