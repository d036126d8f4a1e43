"""How well runs are judged, on labelled logs: caught beside chance, false incidents, noisy runs, lead and named cause.

    python -m bench.detection --cases DIR... [--peers] [--json] [--limits FILE]

Each DIR holds ``labels.json``: file name -> {outcome, damage_row, fault_injected_at_step, declared}. Alarms are warnings or worse; alarms of
one run at most 10 rows apart are one incident.

- caught: an alarm in [damage - W, damage + T], W = min(15, max(10, 25 % of the run)), T = min(10, max(3, 10 %)), and not before the fault was
  injected. chance: what as many incidents at random rows of the same runs would catch.
- false: incidents on healthy runs and before the injection of a fault, per 1000 such rows, with the exact Poisson interval (F. Garwood 1936).
- cause: of the caught runs whose cause is known, those whose first alarm in the window names it.
- Runs that are flat, transient or unclear are listed and not scored.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

UNSCORED = ("unclear", "transient", "flat")
TOGETHER = 10


@dataclass(frozen=True, slots=True)
class Case:
    """One labelled run. ``injected`` is the step of the fault where that is known; rows and steps agree in such runs."""

    name: str
    path: Path
    outcome: str
    damage: int | None
    injected: int | None
    task: str | None
    aux: tuple[str, ...]


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
    modes: dict[str, list[int]] = field(default_factory=dict)
    causes: dict[str, list[int]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    @property
    def per_1000(self) -> float:
        return 1000 * self.false / max(self.healthy_rows, 1)


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
    ("noclip", ("updates too large", "learning rate too high")),
    ("huge_update", ("updates too large", "learning rate too high")),
    ("overoptimization", ("auxiliary reward farmed", "verifier cheated")),
    ("truncation", ("answers do not fit",)),
    ("starved", ("groups without contrast", "answers do not fit", "verifier or environment broke")),
)
"""Part of an outcome's name -> the causes (``monitor.detect.cause``) that name what was done to the run. The first match counts. Where a fault
changed several settings at once each of them is right. Outcomes without an entry have no known cause."""


def load(folders: Iterable[Path]) -> list[Case]:
    """Every labelled run of ``folders``, in the labels' order."""
    cases = []
    for folder in folders:
        labels = json.loads((folder / "labels.json").read_text("utf-8"))
        for name, label in labels.items():
            declared = label.get("declared") or {}
            cases.append(
                Case(
                    f"{folder.name}/{name}",
                    folder / name,
                    label["outcome"],
                    label.get("damage_row"),
                    label.get("fault_injected_at_step"),
                    declared.get("task"),
                    tuple(declared.get("aux") or ()),
                )
            )
    return cases


def run_ours(case: Case, limits: Mapping[str, Mapping[str, float]]) -> Outcome:
    """``vitals diagnose`` in this process."""
    from monitor.adapters.readers import ReadError
    from monitor.cli.offline import diagnose

    start = time.process_time()
    try:
        found = diagnose(case.path, case.task, case.aux, limits)
    except ReadError as error:
        return Outcome(case, 0, error=str(error))
    alarms = [Alarm(entry.row, entry.finding.detector, entry.finding.severity, entry.finding.cause.split(":")[0]) for entry in found.entries]
    loud = [alarm for alarm in alarms if alarm.severity in ("warning", "critical")]
    return Outcome(case, found.rows, loud, time.process_time() - start, watches=[a for a in alarms if a not in loud])


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
    return next((words for part, words in CAUSES if part in outcome), ())


def _broken(total: Score, result: Outcome) -> None:
    case = result.case
    assert case.damage is not None
    rows = [alarm.row for alarm in result.alarms]
    start = case.injected or 0
    early = [row for row in rows if row < start]
    total.healthy_rows += start
    total.false += incidents(early)
    if early:
        total.early.append(case.name)
    low, high = window(case, result.rows)
    hits = [alarm for alarm in result.alarms if low <= alarm.row <= high]
    total.chance += 1 - (1 - (high - low + 1) / max(result.rows, 1)) ** incidents(rows)
    tally = total.modes.setdefault(case.outcome, [0, 0])
    tally[1] += 1
    total.broken += 1
    if not hits:
        total.missed.append(case.name)
        return
    tally[0] += 1
    total.caught += 1
    first = min(alarm.row for alarm in hits)
    total.leads.append(case.damage - first)
    if words := causes_of(case.outcome):
        named = total.causes.setdefault(case.outcome, [0, 0])
        named[1] += 1
        named[0] += any(alarm.cause in words for alarm in hits if alarm.row == first)


def score(results: Iterable[Outcome]) -> Score:
    """The scores of one tool over its results."""
    total = Score()
    for result in results:
        case = result.case
        if result.error is not None:
            total.errors.append(f"{case.name}: {result.error}")
        if case.outcome == "healthy":
            total.healthy += 1
            total.healthy_rows += result.rows
            total.false += incidents(alarm.row for alarm in result.alarms)
            if result.alarms:
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


def _ratio(pairs: Mapping[str, Sequence[int]]) -> str:
    return ", ".join(f"{name.replace('fault:', '')} {a}/{b}" for name, (a, b) in sorted(pairs.items()))


def report(tool: str, total: Score, results: Sequence[Outcome]) -> str:
    """The scores as text for a person."""
    low, high = (1000 * bound / max(total.healthy_rows, 1) for bound in poisson_interval(total.false))
    names_causes = any(alarm.cause for result in results for alarm in result.alarms)
    right, asked = (sum(pair[i] for pair in total.causes.values()) for i in (0, 1))
    faults = {name: pair for name, pair in total.causes.items() if name.startswith("fault:")}
    right_tiny, asked_tiny = (sum(pair[i] for pair in faults.values()) for i in (0, 1))
    lead = statistics.median(total.leads) if total.leads else None
    seconds, rows = sum(r.seconds for r in results), sum(r.rows for r in results)
    lines = [
        f"{tool}",
        f"  caught   {total.caught}/{total.broken} (chance {total.chance:.1f})   median lead {lead} rows",
        f"  false    {total.false} incidents on {total.healthy_rows} healthy rows: {total.per_1000:.2f} per 1000 (95 % {low:.2f} to {high:.2f})",
        f"  noisy    {len(total.noisy)}/{total.healthy} healthy runs",
        f"  cause    {right}/{asked} named right; injected faults {right_tiny}/{asked_tiny}" if names_causes else "  cause    names none",
        f"  by kind  {_ratio(total.modes)}",
        f"  missed   {', '.join(total.missed) or 'none'}",
        f"  noisy    {', '.join(total.noisy) or 'none'}",
        f"  early    {', '.join(total.early) or 'none'}",
    ]
    wrong = sorted(name for name, (a, b) in total.causes.items() if a < b)
    lines += [f"  cause not named  {', '.join(wrong)}"] if wrong and names_causes else []
    lines += [f"  error    {error}" for error in total.errors]
    if seconds:
        lines.append(f"  cost     {1000 * seconds / max(rows, 1):.2f} ms of CPU per row over {rows} rows")
    return "\n".join(lines)


def detail(results: Iterable[Outcome]) -> str:
    """One line per run: what was due, what fired."""
    lines = []
    for result in results:
        case = result.case
        due = "" if case.damage is None else f" damage {case.damage}" + ("" if case.injected is None else f" injected {case.injected}")
        fired = " ".join(f"{a.row}:{a.detector}{'!' if a.severity == 'critical' else ''}" for a in result.alarms)
        quiet = " ".join(f"{a.row}:{a.detector}" for a in result.watches)
        lines.append(f"{case.name} [{case.outcome}{due}, {result.rows} rows] {fired or '-'}" + (f"  ({quiet})" if quiet else ""))
    return "\n".join(lines)


def as_json(tool: str, total: Score, results: Sequence[Outcome]) -> dict[str, Any]:
    runs = [
        {
            "case": r.case.name,
            "outcome": r.case.outcome,
            "damage": r.case.damage,
            "rows": r.rows,
            "error": r.error,
            "fired": [asdict(a) for a in r.alarms],
        }
        for r in results
    ]
    return {"tool": tool, "score": {**asdict(total), "per_1000": total.per_1000}, "runs": runs}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.detection", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--cases", nargs="+", type=Path, required=True, metavar="DIR", help="folders with labels.json")
    parser.add_argument("--peers", action="store_true", help="also run rlwatch, rl-doctor and rlprobe in an environment of their own")
    parser.add_argument("--json", action="store_true", help="print one JSON object per tool")
    parser.add_argument("--detail", action="store_true", help="one line per run: what was due and what fired")
    parser.add_argument("--limits", type=Path, help="JSON file: detector -> threshold -> value")
    arguments = parser.parse_args(argv)
    cases = load(arguments.cases)
    limits = json.loads(arguments.limits.read_text("utf-8")) if arguments.limits else {}
    outcomes = {"rlvitals": [run_ours(case, limits) for case in cases]}
    if arguments.peers:
        from bench import peers

        outcomes |= peers.run(cases)
    for tool, results in outcomes.items():
        total = score(results)
        if arguments.json:
            print(json.dumps(as_json(tool, total, results)))
            continue
        print(report(tool, total, results))
        if arguments.detail:
            print(detail(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
