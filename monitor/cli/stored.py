"""What commands that read stored runs share: a database that is awake, and a moment to begin at."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from monitor.cli import stack
from monitor.cli.errors import CommandError

if TYPE_CHECKING:
    import argparse

    from monitor.settings import Settings

UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


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
