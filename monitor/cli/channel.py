"""``vitals channel``: who can be told, and whether a message arrives there."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from monitor.alerts.channel_table import BUILT_IN
from monitor.cli import stack
from monitor.cli.errors import CommandError
from monitor.cli.parsers import command


def add_parser(commands: Any) -> None:
    parser = command(
        commands,
        "channel",
        "List the channels that alerts can go to, and send a test message through one.",
        """
vitals channel list                  every channel of the environment and of VITALS_RULES, and where it leads
vitals channel test slack            a message that is clearly a test; exit code 1 and the reason when it does not arrive
VITALS_RULES=vitals.toml vitals channel test oncall""",
        run,
    )
    parser.add_argument("action", choices=("list", "test"), help="list the channels, or test one")
    parser.add_argument("name", nargs="?", metavar="NAME", help="the channel to test")


def run(arguments: argparse.Namespace) -> int:
    from monitor import settings as rooms
    from monitor.deliver.channel import TransportError
    from monitor.deliver.trial import send_trial

    settings = stack.load_settings()
    try:
        channels = {each.name: each for each in rooms.channels(settings, rooms.rules(settings))}
    except rooms.SettingsError as error:
        raise CommandError(str(error)) from None
    if arguments.action == "list":
        for name, channel in channels.items():
            print(f"{name:<20} {channel.about}")
        if not channels:
            print("no channel is set up; VITALS_SLACK_WEBHOOK_URL, VITALS_WEBHOOK_URL or a [channel.NAME] table in VITALS_RULES sets one up")
        return 0
    if arguments.name not in channels:
        there = f"; set up: {', '.join(channels)}" if channels else ""
        raise CommandError(f"{_how(arguments.name) if arguments.name else 'which channel? vitals channel test NAME'}{there}")
    try:
        receipt = asyncio.run(send_trial(channels[arguments.name], settings.url))
    except TransportError as error:
        raise CommandError(f"{arguments.name}: {error}", 1) from None
    status = "" if receipt.status is None else f", status {receipt.status}"
    print(f"{arguments.name}: delivered in {receipt.latency_ms:.0f} ms{status}{f'; {receipt.note}' if receipt.note else ''}")
    return 0


def _how(name: str) -> str:
    """What sets up the channel ``name``."""
    if name in BUILT_IN:
        variable = f"VITALS_{'SLACK_' if name == 'slack' else ''}WEBHOOK_URL"
        return f"{name} is not set up; set {variable} in the environment of `vitals up` (or of `vitals work`) and of this command"
    return f"{name} is not set up; add a [channel.{name}] table to a vitals.toml and name that file in VITALS_RULES, see docs/settings.md"
