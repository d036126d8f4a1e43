"""What a detector may look at: this row, the bounded history up to it, and its own thresholds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from monitor.detect.cause import Cause
from monitor.detect.contract import Context, Detector, Finding, Parameter, Row
from monitor.detect.history import Series
from monitor.detect.knobs import named
from monitor.detect.outcome import Outcome
from monitor.detect.strain import Strain, held, onset
from monitor.detect.words import lower

TASK_FALLBACKS = ("reward.task.mean", "reward.pass_rate", "reward.total.mean")
"""Where the declared task reward was never logged, the first of these that was stands for it."""


@lru_cache(maxsize=256)
def _defaults(detector: str, parameters: tuple[Parameter, ...]) -> dict[str, float]:
    return {parameter.name: parameter.default for parameter in parameters}


class View:
    """A row in its run: this row, the judged series up to it, what is strained and how the task stands."""

    __slots__ = ("_series", "_steps", "bits", "context", "memo", "outcome", "row", "strained", "strains")

    def __init__(self, row: Row, context: Context, series: Mapping[str, Series], steps: Sequence[int]) -> None:
        self.row, self.context = row, context
        self._series, self._steps = series, steps
        self.strains: Mapping[str, Strain] = {}
        self.bits: Mapping[str, int] = {}
        self.strained: Mapping[str, str] = {}
        self.outcome: Outcome | None = None
        self.memo: dict[str, Any] = {}

    def series(self, name: str) -> Series:
        """The history of ``name`` including this row; empty when it was never logged or is not judged."""
        return self._series[name]

    def now(self, name: str) -> float | None:
        """This row's finite value of ``name``, or None: absent, NaN and infinity are all no value."""
        value = self.row.values.get(name)
        return value if value is not None and math.isfinite(value) else None

    def first_logged(self, *names: str) -> Series:
        """The first of ``names`` that this run logs; an empty series called after the first name when it logs none."""
        return next((found for name in names if (found := self._series[name]).n), self._series[names[0]])

    def held(self, group: str, of: int) -> int:
        """On how many of the latest ``of`` judged rows ``group`` was strained."""
        return held(self.bits.get(group, 0), of)

    def others(self, *own: str) -> list[Strain]:
        """The strains of this row outside the groups ``own``, first mover first."""
        found = [s for group, s in self.strains.items() if group not in own]
        return sorted(found, key=lambda s: (-onset(self.bits.get(s.group, 0)), s.group))

    def step_of(self, rows_ago: int) -> int:
        """The step of the row ``rows_ago`` rows back, as far as remembered."""
        if not self._steps:
            return self.row.step
        return self._steps[max(0, len(self._steps) - 1 - rows_ago)]

    @property
    def resumed(self) -> bool:
        """Whether the step counter went backwards within the last three rows: the first rows after a resume are unusual by themselves."""
        return any(b < a for a, b in itertools.pairwise(self._steps[-4:]))

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
        own = self.context.limits.get(detector.id)
        override = None if own is None else own.get(name)
        return _defaults(detector.id, detector.parameters)[name] if override is None else override

    def finding(
        self,
        detector: Detector,
        severity: str,
        metric: str,
        value: float,
        *,
        title: str,
        evidence: str,
        why: Cause,
        baseline: float | None = None,
        limit: float | None = None,
    ) -> Finding:
        """A finding on this row, whose step the evidence names; cause, advice (with the settings' names in the run's framework) and refutation
        are those of ``why``."""
        framework = self.context.framework or self.context.config.get("framework")
        return Finding(
            detector=detector.id,
            severity=severity,
            step=self.row.step,
            metric=metric,
            title=title,
            evidence=f"Step {self.row.step:,}: {lower(evidence)}",
            cause=str(why),
            advice=why.remedy + named(why.knobs, framework if isinstance(framework, str) else None),
            value=value,
            baseline=baseline,
            limit=limit,
            refutation=why.check,
        )
