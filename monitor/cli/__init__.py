"""The ``vitals`` command.

Argument parsing is the standard library's, since the base install (SDK and offline tools) has no third-party need but numpy; a command
that needs more imports it when it runs and names the extra to install when it is missing.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from monitor import __version__
from monitor.cli.errors import CommandError
from monitor.cli.parsers import Parser

COMMANDS = ("up", "demo", "serve", "work", "migrate", "runs", "alerts", "diagnose", "rules", "channel", "backtest", "outcome", "bands", "spool")
"""Modules of this package, each with ``add_parser(commands)``, in the order the help shows them."""

EPILOG = """
start here:
  vitals demo                              a real policy breaks in front of you, and an alert is delivered
  vitals up                                collector, worker and dashboards on this machine, http://127.0.0.1:8900
  vitals diagnose trainer_state.json       judge a finished run from its log; no server needed

settings are read from environment variables that begin with VITALS_ (VITALS_DATABASE_URL, VITALS_TOKEN,
VITALS_SLACK_WEBHOOK_URL, VITALS_WEBHOOK_URL ...); `vitals COMMAND --help` names the ones it reads.
"""


def parser() -> argparse.ArgumentParser:
    top = Parser(
        prog="vitals",
        description="Training-health monitoring for reinforcement learning on language models.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"rlvitals {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name in COMMANDS:
        importlib.import_module(f"monitor.cli.{name}").add_parser(commands)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Exit codes: 0 done, 1 a check that did not pass, 2 wrong use or set-up, 130 interrupted, 141 output no longer
    wanted."""
    top = parser()
    arguments = top.parse_args(argv)
    if arguments.command is None:
        top.print_help()
        return 2
    try:
        return int(arguments.run(arguments))
    except CommandError as error:
        print(f"vitals {arguments.command}: {error}", file=sys.stderr)
        return error.code
    except ModuleNotFoundError as error:
        print(f"vitals {arguments.command}: {_missing(error)}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of a pipe has seen enough, as in `vitals diagnose LOG | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        return 130


def _missing(error: ModuleNotFoundError) -> str:
    package = (error.name or "a package").split(".")[0]
    extra = {"dash": "dashboards", "dash_mantine_components": "dashboards", "plotly": "dashboards", "torch": "trainer"}.get(package, "server")
    return f"the package {package!r} is not installed; run: pip install 'rlvitals[{extra}]'"
