"""What commands that read stored runs share: a database that is awake, and a moment to begin at."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from monitor.adapters.readers import LogRow
from monitor.alerts.judgement import Regime
from monitor.alerts.rules import Rules
from monitor.cli import stack
from monitor.cli.errors import CommandError
from monitor.cli.offline import Diagnosis, Judge, Watcher
from monitor.detect.contract import Row

if TYPE_CHECKING:
    import argparse

    from monitor.settings import Settings
    from monitor.store.history import Recorded

UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
MOST_LISTED = 10


def add_options(parser: argparse.ArgumentParser) -> None:
    """``--since``, ``--project``, ``--data-dir`` and ``--json``."""
    parser.add_argument("--since", metavar="WHEN", help="runs heard of since then: 30d, 12h or a date such as 2026-11-01; all if not given")
    parser.add_argument("--project", metavar="NAME", help="only this project")
    parser.add_argument("--data-dir", metavar="FOLDER", help="folder of the embedded Postgres (VITALS_DATA_DIR)")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")


def moment(text: str | None, now: datetime) -> datetime | None:
    """``30d`` before ``now``, or a date, or None for None. Raises CommandError."""
    if text is None:
        return None
    if span := re.fullmatch(r"(\d{1,6})([mhdw])", text.strip()):
        return now - timedelta(**{UNITS[span[2]]: int(span[1])})
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise CommandError(f"--since is a span such as 30d or 12h, or a date such as 2026-11-01, not {text!r}") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


@contextmanager
def awake(settings: Settings) -> Iterator[str]:
    """The address of a database that answers and is up to date; the embedded one is started for the time being if it sleeps."""
    if settings.database_url is not None:
        stack.require_database(settings)
        yield settings.database_url.get_secret_value()
        return
    server = stack.Database(settings.data_dir)
    was_running = server.running()
    server.spawn()
    try:
        stack.require_database(settings)
        yield server.url
    finally:
        if not was_running:
            server.stop()


def diagnose_stored(
    run: str, task: str | None, aux: Sequence[str] | None, rules: Rules, watchers: Iterable[Watcher] = (), data_dir: str | None = None
) -> Diagnosis:
    """Judges the run of the database that ``run`` names from its first row; ``task`` and ``aux`` replace what it declared.

    CommandError unless exactly one is called so, by its identifier, its name or the identifier's beginning.
    """
    settings = stack.load_settings(data_dir=data_dir)
    with awake(settings) as url:
        return asyncio.run(_judge(url, run, task, aux, rules, tuple(watchers)))


def _identifiers(runs: Sequence[Recorded]) -> str:
    return ("... " if len(runs) > MOST_LISTED else "") + ", ".join(each.claim.uid for each in runs[-MOST_LISTED:])


async def _judge(url: str, run: str, task: str | None, aux: Sequence[str] | None, rules: Rules, watchers: Sequence[Watcher]) -> Diagnosis:
    from monitor.store import database, history
    from monitor.worker.judging import about, judgeable

    async with database.opened(url) as engine:
        known = await history.meant(engine, run)
        if not known:
            raise CommandError(f"there is no run {run!r} in the database {database.place(engine.url)}; `vitals runs` lists a collector's")
        if len(known) > 1:
            raise CommandError(f"{len(known)} runs are called {run!r}; name one by its identifier, the newest last: {_identifiers(known)}")
        claim = known[0].claim
        claim = dataclasses.replace(claim, task=task or claim.task, aux=claim.aux if aux is None else tuple(aux))
        declared = "as declared" if claim.task or claim.aux else "by the catalogue's names"
        found = Diagnosis(f"{claim.project}/{claim.name}", "stored rows", "rlvitals", about(claim, rules), f"task and auxiliary rewards {declared}")
        judging, index = Judge(claim.uid, found, watchers), 0
        async for items in history.items(engine, claim):
            segments = iter([item for item in items if item.values is not None])
            for each in judgeable(index, items):
                if isinstance(each, Regime):
                    judging.regime()
                elif isinstance(each, Row):
                    judging.row(LogRow(each.index, each.step, next(segments).segment, 0, each.values))
                    index += 1
    return judging.done()
