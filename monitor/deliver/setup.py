"""Channels out of what was set: each kind of ``vitals.toml`` with the class that carries it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from monitor.alerts.channel_table import Receiver, Source
from monitor.deliver.channel import Channel, ChannelError
from monitor.deliver.long_tail import LongTail
from monitor.deliver.mail import Mail
from monitor.deliver.slack import Slack
from monitor.deliver.slack_bot import API, SlackBot
from monitor.deliver.webhook import Webhook


def build(receiver: Receiver, folder: Path, *, private: bool) -> Channel:
    """The channel of a table; files of secrets are looked for from ``folder``. ChannelError says in one sentence why there is none."""
    secrets = {name: _secret(name, source, folder) for name, source in receiver.secrets.items()}
    channel = _MAKERS[receiver.kind](receiver.name, secrets, receiver.options, private)
    if receiver.interval_s is not None:
        channel.interval_s = receiver.interval_s
    return channel


def _secret(name: str, source: Source, folder: Path) -> str:
    """A secret without the white space around it; the error says where it was looked for and never what it is."""
    if source.how == "env":
        text, where = os.environ.get(source.where, ""), f"the environment variable {source.where}"
    else:
        where = f"the file {source.where}"
        try:
            text = (folder / source.where).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ChannelError(f"{name}_file: {where} cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8 text'}") from None
    if not text.strip():
        raise ChannelError(f"{name}_{source.how}: {where} is {'not set or ' if source.how == 'env' else ''}empty")
    return text.strip()


Maker = Callable[[str, Mapping[str, str], Mapping[str, Any], bool], Channel]


def _slack(name: str, secrets: Mapping[str, str], options: Mapping[str, Any], private: bool) -> Channel:
    return Slack(name, secrets["url"], private=private)


def _webhook(name: str, secrets: Mapping[str, str], options: Mapping[str, Any], private: bool) -> Channel:
    return Webhook(name, secrets["url"], secrets.get("secret"), shape=options.get("format", "rlvitals"), private=private)


def _mail(name: str, secrets: Mapping[str, str], options: Mapping[str, Any], private: bool) -> Channel:
    more = {key: options[key] for key in ("port", "tls", "username") if key in options}
    return Mail(name, options["host"], options["from"], options["to"], password=secrets.get("password"), private=private, **more)


def _apprise(name: str, secrets: Mapping[str, str], options: Mapping[str, Any], private: bool) -> Channel:
    return LongTail(name, secrets["url"], private=private)


def _slack_bot(name: str, secrets: Mapping[str, str], options: Mapping[str, Any], private: bool) -> Channel:
    return SlackBot(name, secrets["token"], options["channel"], api=options.get("api", API), private=private)


_MAKERS: Mapping[str, Maker] = {"slack": _slack, "slack-bot": _slack_bot, "webhook": _webhook, "email": _mail, "apprise": _apprise}
