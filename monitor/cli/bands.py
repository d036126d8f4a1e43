"""``vitals bands``: what was normal in runs that a person called healthy."""

from __future__ import annotations

import argparse
import asyncio
import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from monitor.alerts.bands import Band, Bands, Group, model_of
from monitor.cli import stack, stored
from monitor.cli.parsers import command
from monitor.detect.contract import Row


def add_parser(commands: Any) -> None:
    parser = command(
        commands,
        "bands",
        "Show what was normal in runs called healthy, per project, algorithm and model.",
        """
vitals outcome grpo-7b-seed3 healthy       # first say which runs were
vitals bands                               # entropy, KL, length, gradient norm: where 98 of 100 of their rows lay
vitals bands --project math --json         # to set thresholds by: vitals rules show""",
        run,
    )
    stored.add_options(parser)


def run(arguments: argparse.Namespace) -> int:
    settings = stack.load_settings(data_dir=arguments.data_dir)
    since = stored.moment(arguments.since, datetime.now(UTC))
    with stored.awake(settings) as url:
        found = asyncio.run(_gather(url, since, arguments.project))
    if arguments.json:
        for band in found:
            print(json.dumps(asdict(band)))
        return 0
    print("\n".join(report(found)))
    return 0


async def _gather(url: str, since: datetime | None, project: str | None) -> list[Band]:
    from monitor.store import database, history
    from monitor.worker.judging import judgeable

    bands = Bands()
    async with database.opened(url) as engine:
        for each in await history.recorded(engine, since=since, project=project):
            if each.outcome != "healthy":
                continue
            claim, index = each.claim, 0
            group = Group(claim.project, claim.algorithm or "", model_of(claim.config))
            async for items in history.items(engine, claim):
                rows = [row for row in judgeable(index, items) if isinstance(row, Row)]
                index += len(rows)
                bands.add(group, claim.uid, rows)
    return bands.found()


def report(found: list[Band]) -> list[str]:
    """The bands as a table under a heading per group."""
    if not found:
        return ["no run is called healthy yet, or none is long enough; `vitals outcome RUN healthy` says so"]
    lines: list[str] = []
    group = None
    for band in found:
        if band.group != group:
            group = band.group
            about = ", ".join(part for part in (group.algorithm, group.model) if part)
            lines += [*([""] if lines else []), f"{group.project}{f' ({about})' if about else ''}"]
            lines.append(f"  {'metric':22} {'1 %':>10} {'median':>10} {'99 %':>10} {'rows':>8} {'runs':>5}")
        lines.append(f"  {band.metric:22} {band.low:>10.4g} {band.median:>10.4g} {band.high:>10.4g} {band.rows:>8} {band.runs:>5}")
    return lines
