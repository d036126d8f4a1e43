"""The curves of the page bench: the same for every tool, smooth with a little noise, no library needed."""

from __future__ import annotations

import math


def value(metric: int, step: int) -> float:
    """The value of a metric at a step; the noise is a fixed hash of both."""
    noise = ((step * 2654435761 + metric * 40503) % 65536) / 65536 - 0.5
    return math.sin(step / (900 + 170 * metric)) + 0.1 * metric + 0.2 * noise
