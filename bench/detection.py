"""How well runs are judged, on labelled logs: caught beside chance, in time, false incidents, noisy runs, lead and named cause.

    python -m bench.detection --cases DIR... [--peers] [--json] [--table] [--detail] [--limits FILE]

Each DIR holds ``labels.json``: file name -> {outcome, damage_row, halved_row, fault_injected_at_step, shared_rows, declared}. ``bench.scoring`` says
what is counted.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.scoring import SOON, Alarm, Case, Mode, Outcome, Score, poisson_interval, score


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
