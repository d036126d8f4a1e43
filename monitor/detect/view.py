"""What a detector may look at: this row, the bounded history up to it, and its own thresholds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from monitor.detect import history
from monitor.detect.contract import Context, Detector, Finding, Row
from monitor.detect.history import Series

TASK_FALLBACKS = ("reward.task.mean", "reward.pass_rate", "reward.total.mean")
"""Where the declared task reward was never logged, the first of these that was stands for it."""


class View:
    """A row in its run. Cheap to make: series are looked up when asked for and remembered for the other detectors of the row."""

    __slots__ = ("_cache", "_history", "context", "row")

    def __init__(self, row: Row, context: Context, kept: Mapping[str, Any]) -> None:
        self.row, self.context = row, context
        self._history = kept
        self._cache: dict[str, Series] = {}

    def series(self, name: str) -> Series:
        """The history of ``name`` including this row; empty when it was never logged."""
        found = self._cache.get(name)
        if found is None:
            found = self._cache[name] = history.series(self._history, name)
        return found

    def now(self, name: str) -> float | None:
        """This row's finite value of ``name``, or None: absent, NaN and infinity are all no value."""
        value = self.row.values.get(name)
        return value if value is not None and math.isfinite(value) else None

    def first_logged(self, *names: str) -> Series:
        """The first of ``names`` that this run logs; an empty series called after the first name when it logs none."""
        for name in names:
            if self._history.get(name) is not None:
                return self.series(name)
        return history.empty(names[0])

    def names(self) -> list[str]:
        """Every remembered series, in a fixed order."""
        return sorted(self._history)

    @property
    def task(self) -> Series:
        """The task reward: the declared series, else the best stand-in that was logged."""
        return self.first_logged(self.context.task, *TASK_FALLBACKS)

    @property
    def aux(self) -> list[Series]:
        """The auxiliary rewards that were logged."""
        return [found for name in self.context.aux if (found := self.series(name)).n]

    def limit(self, detector: Detector, name: str) -> float:
        """The threshold ``name`` of ``detector``: the context's override or the default."""
        override = self.context.limits.get(detector.id, {}).get(name)
        if override is not None:
            return override
        return next(p.default for p in detector.parameters if p.name == name)

    def finding(
        self,
        detector: Detector,
        severity: str,
        metric: str,
        value: float,
        title: str,
        evidence: str,
        cause: str,
        advice: str | None = None,
        refutation: str = "",
        baseline: float | None = None,
        limit: float | None = None,
    ) -> Finding:
        return Finding(
            detector=detector.id,
            severity=severity,
            step=self.row.step,
            metric=metric,
            title=title,
            evidence=evidence,
            cause=cause,
            advice=detector.remedy if advice is None else advice,
            value=value,
            baseline=baseline,
            limit=limit,
            refutation=refutation,
        )
