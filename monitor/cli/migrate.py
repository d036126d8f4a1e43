"""``vitals migrate``: the database's schema, brought up to date."""

from __future__ import annotations

import argparse
from typing import Any

from monitor.cli import stack
from monitor.cli.parsers import command
from monitor.cli.up import say


def add_parser(commands: Any) -> None:
    parser = command(
        commands,
        "migrate",
        "Bring the database up to date.",
        """
vitals migrate                                              # the embedded Postgres
VITALS_DATABASE_URL=postgresql://me@db/vitals vitals migrate""",
        run,
    )
    parser.add_argument("--data-dir", metavar="FOLDER", help="folder of the embedded Postgres (VITALS_DATA_DIR)")


def run(arguments: argparse.Namespace) -> int:
    settings = stack.load_settings(data_dir=arguments.data_dir)
    if settings.database_url is not None:
        say(f"database: at revision {stack.migrate_now(settings.database_url.get_secret_value())}")
        return 0
    database = stack.Database(settings.data_dir)
    was_running = database.running()
    database.spawn()
    try:
        say(f"database: at revision {stack.migrate_now(database.url)}")
    finally:
        if not was_running:
            database.stop()
    return 0
