"""``vitals rules``: the file of thresholds and routes, shown and checked."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from monitor.alerts import rules
from monitor.cli.errors import CommandError
from monitor.cli.parsers import command
from monitor.detect.words import counted

EXAMPLES = """
vitals rules show > vitals.toml          every threshold with its unit, meaning and default, commented out
vitals rules check vitals.toml           each problem with its line; exit code 1 when there is one
VITALS_RULES=vitals.toml vitals up       judge by them
vitals diagnose train.log --rules vitals.toml
"""


def add_parser(commands: Any) -> None:
    parser = command(commands, "rules", "Show and check the thresholds of detectors and the routes of alarms.", EXAMPLES, run)
    parser.add_argument("action", choices=("show", "check"), help="show writes a file to start from, check reads one")
    parser.add_argument("path", type=Path, nargs="?", metavar="FILE", help="the file to check, vitals.toml if not given")


def load(path: Path) -> rules.Rules:
    """The rules in ``path``. CommandError with one line per problem."""
    try:
        return rules.parse(path.read_text("utf-8"))
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{path} is not UTF-8 text") from error
    except rules.RulesError as error:
        raise CommandError("\n".join(f"{path}, {problem}" for problem in error.problems), 1) from error


def run(arguments: argparse.Namespace) -> int:
    if arguments.action == "show":
        print(rules.template())
        return 0
    path = arguments.path or Path("vitals.toml")
    found = load(path)
    layers = (found.general, *found.projects.values(), *found.runs.values())
    changed = sum(len(values) for layer in layers for values in layer.values())
    counts = {"threshold": changed, "route": len(found.routes), "channel": len(found.receivers), "act": len(found.acts)}
    print(f"{path}: {', '.join(counted(number, word) for word, number in counts.items())}, nothing wrong")
    return 0
