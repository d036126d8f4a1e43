"""Series of any length in a fixed number of buckets, for small charts. Extremes survive; so does the fact that a value was not finite."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from monitor.adapters.readers import LogRow

BUCKETS = 240


@dataclass(slots=True)
class Curve:
    """Lowest, highest and last finite value of each bucket of ``stride`` rows; ``broken`` are the buckets that held a non-finite one."""

    stride: int = 1
    buckets: dict[int, tuple[float, float, float]] = field(default_factory=dict)
    broken: set[int] = field(default_factory=set)
    last: float = math.nan

    def add(self, index: int, value: float) -> None:
        self.last = value
        place = index // self.stride
        if not math.isfinite(value):
            self.broken.add(place)
        else:
            low, high, _ = self.buckets.get(place, (value, value, value))
            self.buckets[place] = (min(low, value), max(high, value), value)
        while max(len(self.buckets), len(self.broken)) > BUCKETS:
            self._halve()

    def _halve(self) -> None:
        merged: dict[int, tuple[float, float, float]] = {}
        for place, (low, high, last) in sorted(self.buckets.items()):
            before = merged.get(place // 2, (low, high, last))
            merged[place // 2] = (min(before[0], low), max(before[1], high), last)
        self.buckets, self.broken, self.stride = merged, {place // 2 for place in self.broken}, self.stride * 2


class Curves:
    """A watcher that draws every series of a log."""

    def __init__(self) -> None:
        self.series: dict[str, Curve] = {}

    def __call__(self, row: LogRow) -> None:
        for name, value in row.values.items():
            self.series.setdefault(name, Curve()).add(row.index, value)
