"""``vitals work``: judge runs and send alerts."""

from __future__ import annotations

import argparse
import asyncio
import logging
from typing import Any

from monitor.cli import stack
from monitor.cli.errors import CommandError
from monitor.cli.parsers import command


def add_parser(commands: Any) -> None:
    command(
        commands,
        "work",
        "Judge the rows that have arrived and send the alerts that are due.",
        """
VITALS_DATABASE_URL=postgresql://me@db/vitals vitals work        # any number may run side by side
VITALS_SLACK_WEBHOOK_URL=https://... vitals work
VITALS_WEBHOOK_URL=https://me/hook VITALS_WEBHOOK_SECRET=whsec_... vitals work""",
        run,
    )


def run(arguments: argparse.Namespace) -> int:
    from monitor import worker
    from monitor.settings import SettingsError
    from monitor.store.database import DatabaseError
    from monitor.store.embedded import EmbeddedError

    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("vitals").setLevel(logging.INFO)
    settings = stack.load_settings()
    try:
        asyncio.run(worker.run(settings))
    except (SettingsError, DatabaseError, EmbeddedError) as error:
        raise CommandError(str(error)) from None
    return 0
