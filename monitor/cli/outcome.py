"""``vitals outcome``: what a run came to, said by a person."""

from __future__ import annotations

import argparse
import urllib.parse
from typing import Any

from monitor.cli.collector import Collector, add_url
from monitor.cli.parsers import command
from monitor.wire import OUTCOMES


def add_parser(commands: Any) -> None:
    parser = command(
        commands,
        "outcome",
        "Say what a run came to; back-tests count against it.",
        """
vitals outcome grpo-7b-seed3 healthy
vitals outcome 20261101-42 hacked          # the run's identifier, as its page's address has it
vitals outcome grpo-7b-seed3 none          # takes it back""",
        run,
    )
    parser.add_argument("run_id", metavar="RUN", help="the run's identifier")
    parser.add_argument("outcome", choices=(*OUTCOMES, "none"), help="what it came to")
    add_url(parser)


def run(arguments: argparse.Namespace) -> int:
    said = None if arguments.outcome == "none" else arguments.outcome
    Collector(arguments.url).ask("POST", f"/runs/{urllib.parse.quote(arguments.run_id, safe='')}/outcome", {"outcome": said})
    print(f"{arguments.run_id}: {said or 'no outcome'}")
    return 0
