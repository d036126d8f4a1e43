"""``vitals spool``: rows that a dead trainer or an absent collector left on this machine's disk."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from monitor.cli.collector import require_url
from monitor.cli.parsers import command
from monitor.client import leftovers
from monitor.detect.words import counted


def add_parser(commands: Any) -> None:
    parser = command(
        commands,
        "spool",
        "Show or send the rows that earlier processes left on this machine's disk.",
        """
vitals spool status                                  # what waits, per run
vitals spool send                                    # to the collector each run was started with
vitals spool send --url https://vitals.example.org   # somewhere else; VITALS_TOKEN is the token""",
        run,
    )
    parser.add_argument("action", choices=("status", "send"), help="status lists what waits, send delivers it")
    parser.add_argument("--folder", type=Path, help="the spool's folder (VITALS_SPOOL_DIR; the user's state folder if not given)")
    parser.add_argument("--url", metavar="ADDRESS", help="collector to send to instead of the one each run was started with")
    parser.add_argument("--timeout", type=float, metavar="S", default=60.0, help="give up on a run that makes no progress for so long, in seconds")
    parser.add_argument("--json", action="store_true", help="one JSON object per run")


def run(arguments: argparse.Namespace) -> int:
    return _status(arguments) if arguments.action == "status" else _send(arguments)


def _status(arguments: argparse.Namespace) -> int:
    waiting = leftovers.status(arguments.folder)
    for each in waiting:
        if arguments.json:
            told = {"project": each.project, "name": each.name, "run": each.run, "rows": each.rows, "bytes": each.size, "url": each.url}
            print(json.dumps(told | {"rollouts": each.rollouts, "events": each.events}))
        else:
            print(f"{each.project}/{each.name}: {_held(each)} for {each.url}")
    if not waiting and not arguments.json:
        print("nothing waits")
    return 0


def _held(each: leftovers.Waiting) -> str:
    parts = ((each.rows, "row"), (each.rollouts, "rollout"), (each.events, "event"))
    return f"{', '.join(counted(number, noun) for number, noun in parts)} ({each.size:,} bytes)"


def _send(arguments: argparse.Namespace) -> int:
    def begin(each: leftovers.Waiting) -> None:
        if not arguments.json:
            print(f"{each.project}/{each.name}: sending {_held(each)} to {url or each.url}", file=sys.stderr, flush=True)

    def tell(sent: leftovers.Sent) -> None:
        if arguments.json:
            print(
                json.dumps({"project": sent.project, "name": sent.name, "rows": sent.rows, "refused": sent.refused, "problem": sent.problem}),
                flush=True,
            )
        elif sent.problem:
            print(f"{sent.project}/{sent.name}: {sent.problem}; it stays in {sent.folder}", file=sys.stderr, flush=True)
        else:
            refused = f", {sent.refused} refused by the collector" if sent.refused else ""
            print(f"{sent.project}/{sent.name}: {counted(sent.rows)} sent{refused}", flush=True)

    url = None if arguments.url is None else require_url(arguments.url)
    token = os.environ.get("VITALS_TOKEN")
    results = leftovers.send(arguments.folder, url=url, token=token, timeout=arguments.timeout, begin=begin, tell=tell)
    if not results and not arguments.json:
        print("nothing waits")
    return 1 if any(sent.problem for sent in results) else 0
