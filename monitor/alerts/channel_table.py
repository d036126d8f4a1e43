"""The ``[channel.NAME]`` tables of ``vitals.toml``: who can be told.

    [channel.oncall]
    kind = "slack-bot"
    token_env = "ONCALL_TOKEN"
    channel = "#rl-alerts"

    [channel.mail]
    kind = "email"
    host = "smtp.example.org"
    from = "rlvitals@example.org"
    to = ["ada@example.org"]
    username = "rlvitals"
    password_file = "/run/secrets/smtp"

A secret never stands in the file: ``url_env = "NAME"`` names the environment variable that holds it, ``url_file`` a file.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from monitor.alerts.route_table import Complain
from monitor.alerts.spans import read_span

BUILT_IN = ("slack", "webhook")
"""Channels that environment variables set up."""

PLACES = {"env": re.compile(r"[A-Za-z_][A-Za-z0-9_]*"), "file": re.compile(r"(?!.*://)[^\n]+")}
"""Where a secret can be, and what such a name looks like."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True, slots=True)
class Option:
    """A key of a table: what it must hold, in words, and whether it must be there."""

    fits: type | tuple[str, ...]
    words: str
    required: bool = False

    def takes(self, value: Any) -> bool:
        if isinstance(self.fits, tuple):
            return value in self.fits
        if self.fits is list:
            return isinstance(value, list) and bool(value) and all(isinstance(each, str) and each for each in value)
        return isinstance(value, self.fits) and not isinstance(value, bool) and value != ""


@dataclass(frozen=True, slots=True)
class Kind:
    """``secrets`` maps each secret to whether it must be there."""

    secrets: Mapping[str, bool]
    options: Mapping[str, Option] = field(default_factory=dict)


TLS = ("starttls", "tls", "none")
FORMATS = ("rlvitals", "alertmanager")
KINDS: Mapping[str, Kind] = {
    "slack": Kind({"url": True}),
    "slack-bot": Kind(
        {"token": True},
        {
            "channel": Option(str, "a channel's name or id, such as #rl-alerts", required=True),
            "api": Option(str, "the address of Slack's API"),
        },
    ),
    "webhook": Kind({"url": True, "secret": False}, {"format": Option(FORMATS, f"one of {', '.join(FORMATS)}")}),
    "email": Kind(
        {"password": False},
        {
            "host": Option(str, "the mail server's name", required=True),
            "port": Option(int, "a number"),
            "tls": Option(TLS, f"one of {', '.join(TLS)}"),
            "username": Option(str, "a name"),
            "from": Option(str, "an address", required=True),
            "to": Option(list, 'a list of addresses, such as ["ada@example.org"]', required=True),
        },
    ),
    "apprise": Kind({"url": True}),
}
_COMMON = ("kind", "interval")


@dataclass(frozen=True, slots=True)
class Source:
    """Where a secret is: ``how`` is ``env`` or ``file``."""

    how: str
    where: str


@dataclass(frozen=True, slots=True)
class Receiver:
    """One table as it was written. ``interval_s`` is the least time between two messages, None for what is usual for the kind."""

    name: str
    kind: str
    secrets: Mapping[str, Source] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    interval_s: float | None = None


def read_channel(name: str, table: Mapping[str, Any], complain: Complain) -> Receiver | None:
    """One receiver, or None after complaining."""
    wrong: list[str] = []

    def say(key: str, sentence: str) -> None:
        wrong.append(key)
        complain(key, sentence)

    if not NAME.fullmatch(name):
        say("", f"a channel's name has letters, digits, '_', '.' and '-', at most 64, not {name[:80]!r}")
    written = table.get("kind")
    if not isinstance(written, str) or written not in KINDS:
        say("kind" if "kind" in table else "", f"a channel needs a kind, one of {', '.join(KINDS)}{_meant(written, KINDS)}")
        return None
    kind, secrets, options = KINDS[written], dict[str, Source](), dict[str, Any]()
    for key, value in table.items():
        secret, _, how = key.rpartition("_")
        if key in kind.secrets:
            say(key, f'{key} is a secret and does not stand in this file; write {key}_env = "NAME" (an environment variable) or {key}_file = "PATH"')
        elif secret in kind.secrets and how in PLACES:
            if secret in secrets:
                say(key, f"{secret} comes from {secret}_env or from {secret}_file, not from both")
            elif not isinstance(value, str) or not PLACES[how].fullmatch(value):
                say(key, f"{key} must be the name of {'an environment variable' if how == 'env' else 'a file'}, not the secret itself")
            else:
                secrets[secret] = Source(how, value)
        elif key in kind.options:
            if not kind.options[key].takes(value):
                say(key, f"{key} must be {kind.options[key].words}, not {value!r}")
            options[key] = value
        elif key not in _COMMON:
            known = [*kind.options, *(f"{each}_{how}" for each in kind.secrets for how in PLACES), *_COMMON]
            say(key, f"a channel of kind {written} has no {key!r}{_meant(key, known)}; it has: {', '.join(known)}")
    for each, needed in kind.secrets.items():
        if needed and each not in secrets and not any(key.startswith(each) for key in wrong):
            say("", f'a channel of kind {written} needs {each}_env = "NAME" (an environment variable) or {each}_file = "PATH"')
    for each, option in kind.options.items():
        if option.required and each not in table:
            say("", f"a channel of kind {written} needs {each}: {option.words}")
    interval = read_span(table.get("interval"), lambda sentence: say("interval", sentence))
    return None if wrong else Receiver(name, written, secrets, options, interval)


def _meant(wrong: Any, known: Collection[str]) -> str:
    close = difflib.get_close_matches(wrong, known, 1) if isinstance(wrong, str) else ()
    return f"; did you mean {close[0]!r}?" if close else ""
