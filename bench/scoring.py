"""What counts as caught, in time, false and named, on labelled runs. Alarms are warnings or worse; alarms of one run at most 10 rows apart are one
incident.

- caught: an alarm in [damage - W, damage + T], W = min(15, max(10, 25 % of the run)), T = min(10, max(3, 10 %)), and not before the fault was
  injected. chance: what as many incidents at random rows of the same runs would catch.
- before halving: of the broken runs whose fault was injected, those with an alarm from the injection on and before ``halved_row``: the row at
  which the mean of the last five task rewards is at most half of what it was before the fault. Where it never is (the verifier is cheated, an
  answer is looked up, learning stands still) ``damage_row`` stands for it. within 3 rows: no later than three rows after.
- false: incidents on healthy runs and before the injection of a fault, per 1000 such rows, with the exact Poisson interval (F. Garwood 1936). The
  first ``shared_rows`` of a run are those of another run, of which it is a fork, and are not counted again.
- cause: of the caught runs whose cause is known, those whose first alarm in the window names it.
- Runs that are flat, transient or unclear are listed and not scored.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SOON = 3
UNSCORED = ("unclear", "transient", "flat")
TOGETHER = 10


@dataclass(frozen=True, slots=True)
class Case:
    """One labelled run. ``injected`` is the step of the fault where that is known; rows and steps agree in such runs. ``halved`` is the row at which
    the task reward has halved, where it ever does; the first ``shared`` rows belong to another run too."""

    name: str
    path: Path
    outcome: str
    damage: int | None
    injected: int | None
    task: str | None
    aux: tuple[str, ...]
    halved: int | None = None
    shared: int = 0

    @property
    def too_late(self) -> int | None:
        """The row from which on an alarm of a broken run is no warning any more."""
        return self.damage if self.halved is None else self.halved


@dataclass(frozen=True, slots=True)
class Alarm:
    """``cause`` is the named candidate, empty where a tool names none."""

    row: int
    detector: str
    severity: str
    cause: str = ""


@dataclass(slots=True)
class Outcome:
    """What one tool said of one run; ``error`` when it could not read it."""

    case: Case
    rows: int
    alarms: list[Alarm] = field(default_factory=list)
    seconds: float = 0.0
    error: str | None = None
    watches: list[Alarm] = field(default_factory=list)


@dataclass(slots=True)
class Mode:
    """The broken runs of one outcome. ``ahead`` holds for each injected fault that raised an alarm by how many rows it came before the task reward
    had halved, ``first`` the detectors that raised it; ``named`` is how many of ``asked`` causes were named right."""

    caught: int = 0
    broken: int = 0
    injected: int = 0
    before: int = 0
    soon: int = 0
    ahead: list[int] = field(default_factory=list)
    first: dict[str, int] = field(default_factory=dict)
    named: int = 0
    asked: int = 0


@dataclass(slots=True)
class Score:
    caught: int = 0
    broken: int = 0
    chance: float = 0.0
    false: int = 0
    healthy_rows: int = 0
    noisy: list[str] = field(default_factory=list)
    healthy: int = 0
    leads: list[int] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    early: list[str] = field(default_factory=list)
    modes: dict[str, Mode] = field(default_factory=dict)
    late: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def per_1000(self) -> float:
        return 1000 * self.false / max(self.healthy_rows, 1)

    @property
    def before(self) -> tuple[int, int, int]:
        """Injected faults with an alarm before the task reward had halved, with one at most :data:`SOON` rows after it, and all."""
        modes = self.modes.values()
        return sum(m.before for m in modes), sum(m.soon for m in modes), sum(m.injected for m in modes)


CAUSES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("entropy_explosion", ("entropy pushed up",)),
    ("goblin", ("auxiliary reward farmed",)),
    ("test_farming", ("auxiliary reward farmed",)),
    ("length_", ("auxiliary reward farmed", "answers do not fit")),
    ("repetition", ("auxiliary reward farmed",)),
    ("cheat", ("verifier cheated",)),
    ("editable_tests", ("verifier cheated", "verifier or environment broke")),
    ("verifier", ("verifier or environment broke",)),
    ("mismatch", ("sampler and trainer disagree",)),
    ("onpolicy", ("updates too large", "learning rate too high")),
    ("stale", ("stale rollouts", "updates too large", "learning rate too high")),
    ("pair", ("stale rollouts", "updates too large", "learning rate too high")),
    ("lr_too_high", ("learning rate too high", "updates too large")),
    ("cold_start_lr", ("learning rate too high", "updates too large")),
    ("noclip", ("updates too large", "learning rate too high")),
    ("no_clip", ("updates too large", "learning rate too high")),
    ("huge_weight", ("stale rollouts", "sampler and trainer disagree", "updates too large")),
    ("huge_update", ("updates too large", "learning rate too high")),
    ("overoptimization", ("auxiliary reward farmed", "verifier cheated")),
    ("truncation", ("answers do not fit",)),
    ("calculator_bonus", ("auxiliary reward farmed",)),
    ("weight_sync", ("weight sync failed", "sampler and trainer disagree")),
    ("_test", ("verifier or environment broke",)),
    ("all_easy", ("dataset solved", "groups without contrast")),
    ("entropy_collapse", ("premature convergence",)),
    ("starved", ("groups without contrast", "answers do not fit", "verifier or environment broke")),
)
"""Part of an outcome's name (``-`` reads as ``_``) -> the causes (``monitor.detect.cause``) that name what was done to the run. The first match
counts. Where a fault changed several settings at once each of them is right. Outcomes without an entry have no known cause."""


def incidents(rows: Iterable[int]) -> int:
    """How many groups of alarms at most :data:`TOGETHER` rows apart."""
    count, last = 0, -math.inf
    for row in sorted(rows):
        count += row - last > TOGETHER
        last = row
    return count


def window(case: Case, rows: int) -> tuple[int, int]:
    """First and last row whose alarm catches the damage of ``case``."""
    assert case.damage is not None
    low = case.damage - min(15, max(10, rows // 4))
    return max(case.injected or 0, low), min(rows - 1, case.damage + min(10, max(3, rows // 10)))


def causes_of(outcome: str) -> tuple[str, ...]:
    return next((words for part, words in CAUSES if part in outcome.replace("-", "_")), ())


def _broken(total: Score, result: Outcome) -> None:
    case = result.case
    assert case.damage is not None
    rows = [alarm.row for alarm in result.alarms]
    start = case.injected or 0
    early = [row for row in rows if case.shared <= row < start]
    total.healthy_rows += max(0, start - case.shared)
    total.false += incidents(early)
    if early:
        total.early.append(case.name)
    low, high = window(case, result.rows)
    hits = [alarm for alarm in result.alarms if low <= alarm.row <= high]
    total.chance += 1 - (1 - (high - low + 1) / max(result.rows, 1)) ** incidents(rows)
    mode = total.modes.setdefault(case.outcome, Mode())
    mode.broken += 1
    total.broken += 1
    if case.injected is not None:
        _timely(total, mode, result)
    if not hits:
        total.missed.append(case.name)
        return
    mode.caught += 1
    total.caught += 1
    first = min(alarm.row for alarm in hits)
    total.leads.append(case.damage - first)
    if words := causes_of(case.outcome):
        mode.asked += 1
        mode.named += any(alarm.cause in words for alarm in hits if alarm.row == first)


def _timely(total: Score, mode: Mode, result: Outcome) -> None:
    """Whether the first alarm after the injection came in time."""
    case, since = result.case, result.case.injected or 0
    assert case.too_late is not None
    mode.injected += 1
    first = min((alarm.row for alarm in result.alarms if alarm.row >= since), default=None)
    if first is None or first >= case.too_late:
        total.late.append(f"{case.name} ({'never' if first is None else f'{first - case.too_late:+d}'})")
    if first is None:
        return
    mode.before += first < case.too_late
    mode.soon += first <= case.too_late + SOON
    mode.ahead.append(case.too_late - first)
    for detector in dict.fromkeys(alarm.detector for alarm in result.alarms if alarm.row == first):
        mode.first[detector] = mode.first.get(detector, 0) + 1


def score(results: Iterable[Outcome]) -> Score:
    """The scores of one tool over its results."""
    total = Score()
    for result in results:
        case = result.case
        if result.error is not None:
            total.errors.append(f"{case.name}: {result.error}")
        if case.outcome == "healthy":
            total.healthy += 1
            own = [alarm.row for alarm in result.alarms if alarm.row >= case.shared]
            total.healthy_rows += result.rows - case.shared
            total.false += incidents(own)
            if own:
                total.noisy.append(case.name)
        elif case.outcome not in UNSCORED and case.damage is not None:
            _broken(total, result)
    return total


def _poisson_tail(count: int, mean: float) -> float:
    """P(X <= count) for X ~ Poisson(mean)."""
    return math.fsum(math.exp(-mean + k * math.log(mean) - math.lgamma(k + 1)) for k in range(count + 1)) if mean > 0 else 1.0


def _solve(condition: Any, low: float, high: float) -> float:
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if condition(middle) else (low, middle)
    return (low + high) / 2


def poisson_interval(count: int, level: float = 0.95) -> tuple[float, float]:
    """The exact two-sided interval for the mean of a Poisson count (Garwood)."""
    side, top = (1 - level) / 2, 10.0 * (count + 5)
    low = 0.0 if count == 0 else _solve(lambda mean: 1 - _poisson_tail(count - 1, mean) < side, 0.0, top)
    return low, _solve(lambda mean: _poisson_tail(count, mean) > side, 0.0, top)
