"""``vitals up``: everything on this machine."""

from __future__ import annotations

import argparse
import signal
import time
from typing import Any

from monitor.cli import stack
from monitor.cli.parsers import command
from monitor.cli.supervisor import Supervisor


def add_parser(commands: Any) -> None:
    parser = command(
        commands,
        "up",
        "Run Postgres, collector, worker and dashboards on this machine.",
        """
vitals up                                           # http://127.0.0.1:8900, data in the user's data folder
vitals up --port 9000 --data-dir /data/vitals
VITALS_TOKEN=... vitals up --host 0.0.0.0           # other machines may come in, with the token
VITALS_DATABASE_URL=postgresql://me@db/vitals vitals up
VITALS_SLACK_WEBHOOK_URL=https://... vitals up      # alerts go to Slack""",
        run,
    )
    add_address(parser)
    parser.add_argument("--data-dir", metavar="FOLDER", help="where the embedded Postgres and the logs live (VITALS_DATA_DIR)")


def add_address(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", metavar="ADDRESS", help="address to listen on, 127.0.0.1 if not given (VITALS_HOST)")
    parser.add_argument("--port", metavar="N", type=int, help="port to listen on, 8900 if not given (VITALS_PORT)")


def say(line: str) -> None:
    print(line, flush=True)


def run(arguments: argparse.Namespace) -> int:
    settings = stack.load_settings(host=arguments.host, port=arguments.port, data_dir=arguments.data_dir)
    supervisor = Supervisor(say)
    end_cleanly()
    with stack.only_one(settings.data_dir):
        try:
            address = stack.start_stack(supervisor, settings, say)
            say(f"\n  dashboards   {address}\n  send data    VITALS_URL={address}\n  stop         Ctrl-C\n")
            while True:
                supervisor.watch()
                time.sleep(0.2)
        except KeyboardInterrupt:
            say("stopping")
            return 0
        finally:
            supervisor.stop()


def end_cleanly() -> None:
    """Let SIGTERM and SIGINT end a command through its ``finally`` blocks, also where a shell started it with SIGINT ignored."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _interrupt)


def _interrupt(signum: int, frame: object) -> None:
    raise KeyboardInterrupt
