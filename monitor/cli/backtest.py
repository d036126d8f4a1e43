"""``vitals backtest``: stored runs judged again under changed thresholds, beside what the present ones say."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from monitor.alerts.replay import Fire, Replay, difference
from monitor.alerts.rules import Rules
from monitor.cli import stack, stored
from monitor.cli.parsers import command
from monitor.cli.rules import load as load_rules
from monitor.detect.words import counted

BENIGN = ("healthy",)
OPEN = ("flat", "unclear", None)
"""Outcomes that call an alarm neither right nor wrong."""


@dataclass(frozen=True, slots=True)
class Result:
    """One run under today's thresholds and under those tried."""

    run: str
    name: str
    project: str
    outcome: str | None
    rows: int
    today: list[Fire]
    tried: list[Fire]
    today_incidents: int
    tried_incidents: int


def add_parser(commands: Any) -> None:
    parser = command(
        commands,
        "backtest",
        "Judge stored runs again under changed thresholds: what would have fired, and what would not.",
        """
vitals rules show > tried.toml                       # a file to change thresholds in
vitals backtest --rules tried.toml --since 30d       # against the runs of the last 30 days
vitals backtest --project math --json                # what the present thresholds say, one JSON object per run
vitals backtest --rules tried.toml --last 50         # against the 50 newest runs
vitals outcome RUN healthy                           # labels make the answer a score""",
        run,
    )
    parser.add_argument("--rules", type=Path, metavar="FILE", help="the thresholds to try; without it the present ones alone are shown")
    parser.add_argument("--last", type=int, metavar="N", help="only the N newest runs")
    stored.add_options(parser)


def run(arguments: argparse.Namespace) -> int:
    settings = stack.load_settings(data_dir=arguments.data_dir)
    today = load_rules(settings.rules) if settings.rules else Rules()
    tried = load_rules(arguments.rules) if arguments.rules else today
    since = stored.moment(arguments.since, datetime.now(UTC))
    wanted = {"since": since, "project": arguments.project, "last": arguments.last}
    with stored.awake(settings) as url:
        results = asyncio.run(_all(replayed(url, today, tried, **wanted), _print if arguments.json else None))
    if not results:
        print("no stored run fits")
        return 0
    print(json.dumps(summary(results)) if arguments.json else "\n".join(report(results)))
    return 0


async def _all(results: AsyncIterator[Result], tell: Callable[[Result], None] | None) -> list[Result]:
    found = []
    async for result in results:
        found.append(result)
        if tell is not None:
            tell(result)
    return found


def _print(result: Result) -> None:
    gained, lost = difference(result.today, result.tried)
    print(json.dumps({**asdict(result), "gained": [asdict(f) for f in gained], "lost": [asdict(f) for f in lost]}), flush=True)


async def replayed(
    url: str, today: Rules, tried: Rules, *, since: datetime | None = None, project: str | None = None, last: int | None = None
) -> AsyncIterator[Result]:
    """Each stored run judged under both, as soon as it is."""
    from monitor.store import database, history
    from monitor.worker.judging import about, judgeable

    async with database.opened(url) as engine:
        for each in await history.recorded(engine, since=since, project=project, last=last):
            claim, rows = each.claim, 0
            now, then = Replay(claim.uid, about(claim, today)), Replay(claim.uid, about(claim, tried))
            replays = (now,) if then.context == now.context else (now, then)
            async for items in history.items(engine, claim):
                stretch = list(judgeable(rows, items))
                for replay in replays:
                    replay.feed(stretch)
                rows += sum(item.values is not None for item in items)
            other = replays[-1]
            yield Result(claim.uid, claim.name, claim.project, each.outcome, rows, now.fires, other.fires, now.incidents, other.incidents)


def summary(results: Iterable[Result]) -> dict[str, Any]:
    """False incidents per 1000 rows of runs called healthy, and how many of the runs called ill were told of, today and as tried."""
    runs = list(results)
    well = [each for each in runs if each.outcome in BENIGN]
    ill = [each for each in runs if each.outcome not in (*BENIGN, *OPEN)]
    rows = sum(each.rows for each in well)
    return {
        "runs": len(runs),
        "labelled": len(well) + len(ill),
        "healthy_runs": len(well),
        "healthy_rows": rows,
        "ill_runs": len(ill),
        **{
            side: {
                "incidents": sum(getattr(each, f"{side}_incidents") for each in runs),
                "caught": sum(getattr(each, f"{side}_incidents") > 0 for each in ill),
                "noisy": sum(getattr(each, f"{side}_incidents") > 0 for each in well),
                "false_per_1000": 1000 * sum(getattr(each, f"{side}_incidents") for each in well) / rows if rows else None,
            }
            for side in ("today", "tried")
        },
    }


def report(results: list[Result]) -> list[str]:
    """The runs whose alarms differ, each difference on a line, then the sums."""
    lines = []
    for each in results:
        gained, lost = difference(each.today, each.tried)
        if not gained and not lost:
            continue
        lines.append(f"{each.project}/{each.name} ({each.outcome or 'not labelled'}, {counted(each.rows)})")
        changes = [("+", fire) for fire in gained] + [("-", fire) for fire in lost]
        lines += [f"  {sign} {_fire(fire)}" for sign, fire in sorted(changes, key=lambda change: change[1].row)]
    if not lines:
        lines.append("no alarm differs")
    total = summary(results)
    lines += ["", f"{'':10} incidents   caught of {total['ill_runs']} ill   noisy of {total['healthy_runs']} healthy   false per 1000 rows"]
    for side in ("today", "tried"):
        sums = total[side]
        rate = "-" if sums["false_per_1000"] is None else f"{sums['false_per_1000']:.2f}"
        lines.append(f"{side:10} {sums['incidents']:>9} {sums['caught']:>17} {sums['noisy']:>21} {rate:>21}")
    if not total["labelled"]:
        lines.append(
            "No run is labelled: say what runs came to with `vitals outcome RUN healthy` (or collapse, hacked ...), and this becomes a score."
        )
    return lines


def _fire(fire: Fire) -> str:
    return f"row {fire.row}, step {fire.step}: {fire.severity} {fire.detector}{'' if fire.told else ' (explained by another)'}"
