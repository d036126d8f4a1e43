"""What a fault costs, and when: rules over the rows of a run, and which metrics left their band first."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

Rows = Sequence[Mapping[str, float]]
WINDOW = 5
LEAST = 0.05
"""Half of less than this is no loss that a run of 64 rollouts per step can show."""

WORTH = 0.25
"""A success rate below this is that of a policy that has not learned yet."""

BAND_ROWS = 10
BAND_SIGMAS = 4.0
GAP = {"high": "reward.task.mean", "low": "reward.audit.mean"}
IGNORED = ("perf.", "progress.", "opt.lr", "batch.", "reward.total.", "env.metric.groups_drawn")
"""Timings of a busy machine, settings and sums that repeat another metric say nothing about the run's health."""


def mean_at(rows: Rows, metric: str, end: int, window: int = WINDOW) -> float:
    """Mean of ``metric`` over the ``window`` rows before row ``end``; NaN when none of them has it."""
    values = [row[metric] for row in rows[max(0, end - window) : end] if metric in row]
    return statistics.fmean(values) if values else math.nan


def damage_step(rows: Rows, at_step: int, rule: Mapping[str, Any], control: Rows | None = None, for_steps: int | None = None) -> int | None:
    """The first step at which the fault's cost is plain, or None.

    ``rule`` (default: ``halves`` on ``reward.audit.mean``) compares the mean of the last five rows: ``halves`` with ``factor`` (0.5) times the
    mean of the five rows before the fault; ``behind`` with ``factor`` times the control at the same step, from ten steps after the fault;
    ``gap`` wants ``high`` (the configured reward) less ``low`` (the audit reward) to reach ``limit``; ``above`` and ``below`` compare
    ``metric`` with ``limit``. Rows of a fault that lasts ``for_steps`` steps do not count themselves, only what it leaves behind.
    """
    kind, metric = rule.get("rule", "halves"), rule.get("metric", "reward.audit.mean")
    factor, limit = rule.get("factor", 0.5), rule.get("limit", 0.5)
    before = mean_at(rows, metric, max(1, at_step))
    start = at_step + (for_steps or 0)
    for end in range(start + 1, len(rows) + 1):
        window = min(WINDOW, end - start)
        now = mean_at(rows, metric, end, window)
        if kind == "halves":
            hit = before >= LEAST and now <= factor * before
        elif kind == "behind":
            hit = control is not None and end > at_step + 10 and end <= len(control) and now <= factor * mean_at(control, metric, end, window)
        elif kind == "gap":
            high, low = (mean_at(rows, rule.get(side, name), end, window) for side, name in GAP.items())
            hit = high - low >= limit
        elif kind == "above":
            hit = now >= limit
        else:
            hit = now <= limit
        if hit and (kind in ("halves", "above", "below") or window == WINDOW):
            return end - 1
    return None


def halved_row(rows: Rows, at_step: int, metric: str = "reward.task.mean") -> int | None:
    """The first row from the fault on at which the mean of the last five rows, those before the fault included, is at most half of what it was
    in the five rows before the fault; None when it never is, or was too little to halve."""
    before = mean_at(rows, metric, at_step) if at_step else math.nan
    if not before >= LEAST:
        return None
    return next((end - 1 for end in range(at_step + 1, len(rows) + 1) if mean_at(rows, metric, end) <= 0.5 * before), None)


def fall_row(rows: Rows, metric: str = "reward.audit.mean", share: float = 1 / 3) -> int | None:
    """The first row at which the mean of the last five rows has lost ``share`` of the best such mean before it; None when it never has. A best of
    less than :data:`WORTH` cannot fall."""
    best = math.nan
    for end in range(WINDOW, len(rows) + 1):
        now = mean_at(rows, metric, end)
        if best >= WORTH and now <= (1 - share) * best:
            return end - 1
        best = now if not best >= now else best
    return None


def first_signals(rows: Rows, at_step: int, normal: Rows, count: int = 3) -> list[tuple[str, int]]:
    """The metrics that first left the band mean +-4 standard deviations of ``normal`` for two rows in a row: (name, step), earliest first."""
    found = []
    for name in {key for row in normal for key in row}:
        if name.startswith(IGNORED):
            continue
        usual = [row[name] for row in normal if name in row and math.isfinite(row[name])]
        if len(usual) < 4:
            continue
        middle, spread = statistics.fmean(usual), statistics.pstdev(usual)
        margin = max(BAND_SIGMAS * spread, 1e-3 * abs(middle), 1e-6)
        outside = [not abs(row.get(name, middle) - middle) <= margin for row in rows]
        step = next((i for i in range(at_step, len(rows) - 1) if outside[i] and outside[i + 1]), None)
        if step is not None:
            excess = abs(rows[step][name] - middle) / margin
            found.append((step, -excess if math.isfinite(excess) else -math.inf, name))
    return [(name, step) for step, _, name in sorted(found)[:count]]
