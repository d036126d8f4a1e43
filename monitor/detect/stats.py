"""Small robust statistics on short lists of finite floats; plain Python is faster than numpy at these lengths."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

MAD_TO_SD = 1.4826
"""Standard deviations per median absolute deviation of a normal distribution."""


def median(x: Sequence[float]) -> float:
    """The middle value; NaN for none."""
    if not x:
        return math.nan
    ordered = sorted(x)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else 0.5 * (ordered[half - 1] + ordered[half])


def mean(x: Sequence[float]) -> float:
    """The arithmetic mean; NaN for none."""
    return sum(x) / len(x) if x else math.nan


def noise(x: Sequence[float]) -> float:
    """Standard deviation of the rows around their slow trend: root mean square of successive differences / sqrt(2) (von Neumann, 1941).

    A trend or a level shift hardly enters it; 0 for fewer than two values.
    """
    if len(x) < 2:
        return 0.0
    return math.hypot(*[b - a for a, b in itertools.pairwise(x)]) / math.sqrt(2 * (len(x) - 1))


def robust_noise(x: Sequence[float]) -> float:
    """As :func:`noise` from the median absolute difference, deaf to single spikes; falls back to :func:`noise` when most rows repeat."""
    steps = [abs(b - a) for a, b in itertools.pairwise(x)]
    middle = median(steps)
    if not steps or middle == 0:
        return noise(x)
    return MAD_TO_SD * middle / math.sqrt(2)


def scatter(x: Sequence[float]) -> float:
    """Robust standard deviation around the resistant line of :func:`trend`, which also sees slow wandering; 0 for fewer than six values."""
    n = len(x)
    if n < 6:
        return 0.0
    level, slope = trend(x)
    middle = n - 1 - (n // 3 - 1) / 2
    return MAD_TO_SD * median([abs(v - level - slope * (i - middle)) for i, v in enumerate(x)])


def trend(x: Sequence[float]) -> tuple[float, float]:
    """``(level, slope)`` at the end of ``x``: a line through the medians of the first and the last third (Tukey's resistant line).

    ``slope`` is per row; 0 for fewer than six values.
    """
    n = len(x)
    if n < 6:
        return median(x), 0.0
    third = n // 3
    first, last = median(x[:third]), median(x[-third:])
    return last, (last - first) / (n - third)


def kendall(x: Sequence[float]) -> float:
    """Mann-Kendall trend test: the normal score of the number of rising minus falling pairs (Kendall, 1975), continuity corrected."""
    n = len(x)
    if n < 4:
        return 0.0
    s = sum((b > a) - (b < a) for i, a in enumerate(x) for b in x[i + 1 :])
    sd = math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    return (s - (s > 0) + (s < 0)) / sd


def change_point(x: Sequence[float]) -> int:
    """The index of the first value after the split that leaves the least squares around two means; 0 for fewer than four values."""
    n = len(x)
    if n < 4:
        return 0
    total, best, at, left = sum(x), -1.0, 0, 0.0
    for i in range(1, n):
        left += x[i - 1]
        right = total - left
        gain = left * left / i + right * right / (n - i)
        if gain > best:
            best, at = gain, i
    return at


def binomial_tail(k: int, n: int, p: float) -> float:
    """Probability of at least ``k`` successes in ``n`` trials with chance ``p``."""
    return sum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k, n + 1))


def binomial_se(p: float, n: float) -> float:
    """Standard error of a share ``p`` of ``n`` samples, Laplace-smoothed so that it is never 0."""
    if n <= 0:
        return 0.0
    q = (p * n + 1) / (n + 2)
    return math.sqrt(q * (1 - q) / n)
