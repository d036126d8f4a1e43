"""How well runs are judged, on labelled logs: caught beside chance, false incidents, noisy runs, lead and named cause.

    python -m bench.detection --cases DIR... [--peers] [--json] [--table] [--detail] [--limits FILE]

Each DIR holds ``labels.json``: file name -> {outcome, damage_row, halved_row, fault_injected_at_step, shared_rows, declared}. Alarms are
warnings or worse; alarms of one run at most 10 rows apart are one incident.

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
                    label.get("halved_row"),
                    label.get("shared_rows", 0),
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


def _ratio(modes: Mapping[str, Mode]) -> str:
    return ", ".join(f"{name.replace('fault:', '')} {mode.caught}/{mode.broken}" for name, mode in sorted(modes.items()))


def report(tool: str, total: Score, results: Sequence[Outcome]) -> str:
    """The scores as text for a person."""
    low, high = (1000 * bound / max(total.healthy_rows, 1) for bound in poisson_interval(total.false))
    names_causes = any(alarm.cause for result in results for alarm in result.alarms)
    modes = total.modes.values()
    right, asked = sum(mode.named for mode in modes), sum(mode.asked for mode in modes)
    faults = [mode for name, mode in total.modes.items() if name.startswith("fault:")]
    right_tiny, asked_tiny = sum(mode.named for mode in faults), sum(mode.asked for mode in faults)
    before, soon, injected = total.before
    lead = statistics.median(total.leads) if total.leads else None
    seconds, rows = sum(r.seconds for r in results), sum(r.rows for r in results)
    lines = [
        f"{tool}",
        f"  caught   {total.caught}/{total.broken} (chance {total.chance:.1f})   median lead {lead} rows",
        f"  in time  before halving {before}/{injected}   within {SOON} rows after {soon}/{injected}" if injected else "  in time  no injected fault",
        f"  false    {total.false} incidents on {total.healthy_rows} healthy rows: {total.per_1000:.2f} per 1000 (95 % {low:.2f} to {high:.2f})",
        f"  noisy    {len(total.noisy)}/{total.healthy} healthy runs",
        f"  cause    {right}/{asked} named right; injected faults {right_tiny}/{asked_tiny}" if names_causes else "  cause    names none",
        f"  by kind  {_ratio(total.modes)}",
        f"  missed   {', '.join(total.missed) or 'none'}",
        f"  late     {', '.join(total.late) or 'none'}",
        f"  noisy    {', '.join(total.noisy) or 'none'}",
        f"  early    {', '.join(total.early) or 'none'}",
    ]
    wrong = sorted(name for name, mode in total.modes.items() if mode.named < mode.asked)
    lines += [f"  cause not named  {', '.join(wrong)}"] if wrong and names_causes else []
    lines += [f"  error    {error}" for error in total.errors]
    if seconds:
        lines.append(f"  cost     {1000 * seconds / max(rows, 1):.2f} ms of CPU per row over {rows} rows")
    return "\n".join(lines)


def table(total: Score) -> str:
    """The broken runs by what was done to them, as Markdown."""
    lines = ["| fault | runs | caught | before halving | within 3 rows | rows ahead, median | first alarm | cause named |", "|" + "---|" * 8]
    for name, mode in sorted(total.modes.items()):
        timely = [f"{mode.before}/{mode.injected}", f"{mode.soon}/{mode.injected}"] if mode.injected else ["-", "-"]
        ahead = f"{statistics.median(mode.ahead):g}" if mode.ahead else "-"
        first = ", ".join(f"{detector} {count}" for detector, count in sorted(mode.first.items(), key=lambda item: (-item[1], item[0]))) or "-"
        named = f"{mode.named}/{mode.asked}" if mode.asked else "-"
        cells = [name.removeprefix("fault:"), str(mode.broken), f"{mode.caught}/{mode.broken}", *timely, ahead, first, named]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def detail(results: Iterable[Outcome]) -> str:
    """One line per run: what was due, what fired."""
    lines = []
    for result in results:
        case = result.case
        due = (
            ""
            if case.damage is None
            else f" damage {case.damage}"
            + (f" halved {case.halved}" if case.halved is not None else "")
            + ("" if case.injected is None else f" injected {case.injected}")
        )
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
            "halved": r.case.halved,
            "injected": r.case.injected,
            "rows": r.rows,
            "error": r.error,
            "fired": [asdict(a) for a in r.alarms],
        }
        for r in results
    ]
    return {"tool": tool, "score": {**asdict(total), "per_1000": total.per_1000, "before_halving": total.before}, "runs": runs}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.detection", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--cases", nargs="+", type=Path, required=True, metavar="DIR", help="folders with labels.json")
    parser.add_argument("--peers", action="store_true", help="also run rlwatch, rl-doctor and rlprobe in an environment of their own")
    parser.add_argument("--json", action="store_true", help="print one JSON object per tool")
    parser.add_argument("--detail", action="store_true", help="one line per run: what was due and what fired")
    parser.add_argument("--table", action="store_true", help="also a Markdown table, one line per fault")
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
        if arguments.table:
            print(table(total))
        if arguments.detail:
            print(detail(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
