"""A few values as a line of block characters, for places that show only text."""

from __future__ import annotations

import math
from collections.abc import Sequence

BARS = "▁▂▃▄▅▆▇█"
BAD = "×"
"""Stands for a value that is not finite."""


def sparkline(values: Sequence[float], width: int = 32) -> str:
    """The last ``width`` values between their own minimum and maximum; empty for fewer than three, which show no course."""
    shown = values[-width:]
    finite = [value for value in shown if math.isfinite(value)]
    if len(shown) < 3:
        return ""
    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
    return "".join(_bar(value, low, high) for value in shown)


def _bar(value: float, low: float, high: float) -> str:
    if not math.isfinite(value):
        return BAD
    # Halves first: the difference of two finite values can overflow.
    span = high / 2 - low / 2
    share = (value / 2 - low / 2) / span if span > 0 else 0.0
    return BARS[min(int(share * len(BARS)), len(BARS) - 1)]
