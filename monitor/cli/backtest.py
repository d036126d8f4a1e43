"""``vitals backtest``: stored runs judged again under changed thresholds, beside what the present ones say."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from collections.abc import Iterable
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from monitor.alerts.replay import Fire, Replay, difference
from monitor.alerts.rules import Rules
from monitor.cli import stack
from monitor.cli.errors import CommandError
from monitor.cli.parsers import command
from monitor.cli.rules import load as load_rules

if TYPE_CHECKING:
    from collections.abc import Iterator

    from monitor.settings import Settings

UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
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
vitals outcome RUN healthy                           # labels make the answer a score""",
        run,
    )
    parser.add_argument("--rules", type=Path, metavar="FILE", help="the thresholds to try; without it the present ones alone are shown")
    parser.add_argument("--since", metavar="WHEN", help="runs heard of since then: 30d, 12h or a date such as 2026-11-01; all if not given")
    parser.add_argument("--project", metavar="NAME", help="only this project")
    parser.add_argument("--data-dir", metavar="FOLDER", help="folder of the embedded Postgres (VITALS_DATA_DIR)")
    parser.add_argument("--json", action="store_true", help="one JSON object per run, and one for the sum")


def moment(text: str, now: datetime) -> datetime:
    """``30d`` before ``now``, or a date. Raises CommandError."""
    if span := re.fullmatch(r"(\d+)([mhdw])", text.strip()):
        return now - timedelta(**{UNITS[span[2]]: int(span[1])})
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise CommandError(f"--since is a span such as 30d or 12h, or a date such as 2026-11-01, not {text!r}") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def run(arguments: argparse.Namespace) -> int:
    settings = stack.load_settings(data_dir=arguments.data_dir)
    today = load_rules(settings.rules) if settings.rules else Rules()
    tried = load_rules(arguments.rules) if arguments.rules else today
    since = moment(arguments.since, datetime.now(UTC)) if arguments.since else None
    with _database(settings) as url:
        stack.require_database(settings)
        results = asyncio.run(_replay(url, today, tried, since, arguments.project))
    if not results:
        print("no stored run fits")
        return 0
    if arguments.json:
        for result in results:
            gained, lost = difference(result.today, result.tried)
            print(json.dumps({**asdict(result), "gained": [asdict(f) for f in gained], "lost": [asdict(f) for f in lost]}))
        print(json.dumps(summary(results)))
        return 0
    print("\n".join(report(results)))
    return 0


@contextmanager
def _database(settings: Settings) -> Iterator[str]:
    """The address of a running database; the embedded one is started for the time being if it sleeps."""
    if settings.database_url is not None:
        yield settings.database_url.get_secret_value()
        return
    server = stack.Database(settings.data_dir)
    awake = server.running()
    server.spawn()
    try:
        yield server.url
    finally:
        if not awake:
            server.stop()


async def _replay(url: str, today: Rules, tried: Rules, since: datetime | None, project: str | None) -> list[Result]:
    from monitor.store import database, history
    from monitor.worker.judging import about, judgeable

    results = []
    async with database.opened(url) as engine:
        for each in await history.recorded(engine, since=since, project=project):
            claim, rows = each.claim, 0
            now, then = Replay(claim.uid, about(claim, today)), Replay(claim.uid, about(claim, tried))
            replays = (now,) if then.context == now.context else (now, then)
            async for items in history.items(engine, claim):
                stretch = list(judgeable(rows, items))
                for replay in replays:
                    replay.feed(stretch)
                rows += sum(item.values is not None for item in items)
            other = replays[-1]
            results.append(Result(claim.uid, claim.name, claim.project, each.outcome, rows, now.fires, other.fires, now.incidents, other.incidents))
    return results


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
        lines.append(f"{each.project}/{each.name} ({each.outcome or 'not labelled'}, {each.rows} rows)")
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
