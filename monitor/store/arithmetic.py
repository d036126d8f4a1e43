"""Means that cannot fail: PostgreSQL raises where a sum or a quotient leaves float8's range, and its own avg already past 1e154."""

from __future__ import annotations

from collections.abc import Sequence

TINY = 1e-290
"""Smaller values count as zero in a mean: dividing them could underflow."""

HUGE = 1.7e308
"""Larger values count as this much in a mean."""


def mean(value: str, count: str, size: float) -> str:
    """SQL of the aggregate mean of ``value``, each standing for ``count`` measurements, of which there are at most ``size`` in a group.

    NULL where there are none. Rows whose ``count`` is NULL or 0 do not enter, so it also serves as the filter.
    """
    bounded = f"CASE WHEN abs({value}) < {TINY} THEN 0 ELSE greatest({-HUGE}, least({HUGE}, {value})) END"
    enter = f"FILTER (WHERE {count} > 0)"
    return f"sum({bounded} / CAST({size} AS float8) * {count}) {enter} * (CAST({size} AS float8) / nullif(sum({count}) {enter}, 0))"


def plain_mean(values: Sequence[float], size: float) -> float | None:
    """What :func:`mean` gives for finite ``values`` in the order of their rows, each counted once; None without any."""
    if not values:
        return None
    total = 0.0
    for value in values:
        total += 0.0 if abs(value) < TINY else max(-HUGE, min(HUGE, value)) / size
    return total * (size / len(values))
