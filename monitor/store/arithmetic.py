"""Means that cannot fail: PostgreSQL raises where a sum or a quotient leaves float8's range, and its own avg already past 1e154."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, case, func

TINY = 1e-290
"""Smaller values count as zero in a mean: dividing them could underflow."""

HUGE = 1.7e308
"""Larger values count as this much in a mean."""


def mean(value: ColumnElement[Any], count: ColumnElement[Any], size: float) -> ColumnElement[Any]:
    """The aggregate mean of ``value``, each standing for ``count`` measurements, of which there are at most ``size`` in a group.

    NULL where there are none. Rows whose ``count`` is NULL or 0 do not enter, so it also serves as the filter.
    """
    bounded = case((func.abs(value) < TINY, 0.0), else_=func.greatest(-HUGE, func.least(HUGE, value)))
    total = func.sum(count).filter(count > 0)
    return func.sum(bounded / size * count).filter(count > 0) * (size / func.nullif(total, 0))
