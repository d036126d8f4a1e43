"""Two sets of thresholds over the same rows: which alarms each raises, and what differs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from monitor.alerts.book import Transition, is_alarm
from monitor.alerts.incident import WINDOW
from monitor.alerts.judgement import Arrival, Regime, judge
from monitor.detect.contract import Context, Row


@dataclass(frozen=True, slots=True)
class Fire:
    """An alarm that began or rose. ``told``: people would have been told of it, nothing else explains it."""

    row: int
    step: int
    detector: str
    severity: str
    told: bool


@dataclass(slots=True)
class Replay:
    """One run judged from its first row under one set of thresholds, stretch by stretch."""

    run: str
    context: Context
    state: Mapping[str, Any] = field(default_factory=dict)
    fires: list[Fire] = field(default_factory=list)

    def feed(self, items: Iterable[Row | Regime | Arrival]) -> None:
        judged = judge(self.run, self.state, items, self.context)
        self.state = judged.state
        self.fires += [_fire(change) for change in judged.transitions if is_alarm(change.to_state) and change.to_state != change.from_state]

    @property
    def incidents(self) -> int:
        """Stretches of alarms that people would have been told of."""
        count, last = 0, None
        for fire in self.fires:
            if fire.told:
                count += last is None or fire.row - last > WINDOW
                last = fire.row
        return count


def _fire(change: Transition) -> Fire:
    return Fire(change.index, change.step, change.detector, change.to_state, change.alarms)


def difference(today: Sequence[Fire], tried: Sequence[Fire]) -> tuple[list[Fire], list[Fire]]:
    """``(gained, lost)``: alarms of ``tried`` without a counterpart in ``today``, and the reverse. Counterparts are alarms of one detector and
    severity within :data:`WINDOW` rows; each has at most one."""
    left = list(today)
    gained = []
    for fire in tried:
        near = [known for known in left if (known.detector, known.severity) == (fire.detector, fire.severity) and abs(known.row - fire.row) <= WINDOW]
        if near:
            left.remove(min(near, key=lambda known: abs(known.row - fire.row)))
        else:
            gained.append(fire)
    return gained, left
