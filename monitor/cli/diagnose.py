"""``vitals diagnose``: judge a log file without a server, row by row exactly as live."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from monitor.adapters.readers import ReadError
from monitor.alerts.rules import Rules
from monitor.cli import report_html, report_text
from monitor.cli.curves import Curves
from monitor.cli.errors import CommandError
from monitor.cli.offline import diagnose
from monitor.cli.parsers import command
from monitor.cli.rules import load as load_rules
from monitor.cli.stored import diagnose_stored

EXAMPLES = """
vitals diagnose outputs/                                     the newest checkpoint's trainer_state.json, or event files
vitals diagnose train.log --task correctness_reward_func --aux format_reward_func
vitals diagnose metrics.jsonl --html report.html
vitals diagnose --stored grpo-7b-seed3                       a run that the collector took
vitals diagnose train.log --json --fail-on critical          in CI: exit code 1 when a critical alarm was raised
"""


def add_parser(commands: Any) -> None:
    parser = command(commands, "diagnose", "Judge a run from its log file; no server needed.", EXAMPLES, run)
    parser.description = (
        "Judge a run from its log: TRL and Unsloth (console, trainer_state.json, notebooks), verl, tinker, prime-rl, W&B exports, TensorBoard, "
        "CSV, JSON lines and key=value text. The trainer is recognised from its metric names."
    )
    parser.add_argument("path", type=Path, metavar="LOG", help="the log file, or a folder of checkpoints or event files")
    parser.add_argument(
        "--stored", action="store_true", help="LOG is a run in the database instead: its name, or its identifier or the beginning of it"
    )
    parser.add_argument("--data-dir", metavar="FOLDER", help="with --stored: folder of the embedded Postgres (VITALS_DATA_DIR)")
    parser.add_argument("--task", metavar="KEY", help="the reward that is the task, as the log or the catalogue names it")
    parser.add_argument("--aux", metavar="KEY", action="append", help="a reward that only helps the task; may be given again, or several with commas")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write a report that needs no network")
    parser.add_argument("--rules", type=Path, metavar="FILE", help="thresholds to use instead of the defaults (see vitals rules)")
    parser.add_argument("--fail-on", choices=("warning", "critical"), help="exit with 1 when an alarm at least so severe was raised")


def run(arguments: argparse.Namespace) -> int:
    rules = load_rules(arguments.rules) if arguments.rules else Rules()
    aux = None if arguments.aux is None else [key.strip() for given in arguments.aux for key in given.split(",") if key.strip()]
    curves = Curves() if arguments.html else None
    watchers = [curves] if curves else []
    try:
        if arguments.stored:
            found = diagnose_stored(str(arguments.path), arguments.task, aux, rules, watchers, arguments.data_dir)
        else:
            found = diagnose(arguments.path, arguments.task, aux or (), rules.limits(), watchers)
    except ReadError as error:
        raise CommandError(f"{error}{_perhaps_stored(arguments.path)}") from error
    if curves is not None:
        try:
            arguments.html.write_text(report_html.render(found, curves.series), "utf-8")
        except OSError as error:
            raise CommandError(f"the report {arguments.html} cannot be written: {error.strerror or error}") from error
    if arguments.json:
        print(json.dumps(found.as_dict(), allow_nan=False))
    else:
        width = min(max(shutil.get_terminal_size((100, 24)).columns, 60), 120)
        print(report_text.render(found, width, sys.stdout.isatty() and "NO_COLOR" not in os.environ))
    return 1 if arguments.fail_on and found.alarms(arguments.fail_on) else 0


def _perhaps_stored(path: Path) -> str:
    """A hint for a word that is no file and may be a run's identifier."""
    plain = not path.exists() and path.name == str(path) and not path.suffix
    return "; is it a run in the database? then add --stored" if plain else ""
