"""``vitals work``: judge runs and send alerts."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from monitor.cli import stack
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

    settings = stack.load_settings()
    stack.require_database(settings)
    asyncio.run(worker.run(settings))
    return 0
