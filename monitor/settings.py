"""What can be set from outside: environment variables named ``VITALS_...`` and their defaults."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from monitor.alerts.rules import Rules, RulesError, parse
from monitor.deliver import setup
from monitor.deliver.channel import Channel, ChannelError
from monitor.deliver.slack import Slack
from monitor.deliver.webhook import Webhook, signer
from monitor.store.embedded import default_folder

ROLES = ("all", "collector", "web")


SECRETS = ("token", "database_url", "slack_webhook_url", "webhook_url", "webhook_secret")
"""Settings that may also be the contents of a file, named by ``VITALS_..._FILE``."""


class SettingsError(ValueError):
    """A setting is wrong; the message is one sentence that names it."""


class Settings(BaseSettings):
    """Every setting; the environment variable is the name in upper case with ``VITALS_`` before it.

    ``database_url``: an existing PostgreSQL (15 or later); without it the embedded server in ``data_dir`` is used.
    ``host``, ``port``: where the collector listens. Any address but loopback needs ``token``, and then writing and the pages need it too.
    ``public_url``: the address that messages link to, if it is not the one listened on.
    ``role``: ``collector`` takes data, ``web`` shows pages, ``all`` does both.
    ``slack_webhook_url``, ``webhook_url``, ``webhook_secret``: where alerts go; the secret, base64 of 24 to 64 bytes, signs the generic webhook
    (``echo whsec_$(openssl rand -base64 32)`` makes one).
    ``rules``: a ``vitals.toml`` with thresholds of detectors, routes and more channels (``vitals rules``); read when the worker starts.
    ``allow_private_webhooks``: alerts may also go to addresses that are not on the public internet, such as this machine or a mail server in the
    same network.

    Of ``token``, ``database_url`` and the three that say where alerts go, ``VITALS_..._FILE`` may name a file that holds it, such as
    ``VITALS_TOKEN_FILE=/run/secrets/token``.
    """

    model_config = SettingsConfigDict(env_prefix="VITALS_", extra="ignore", env_ignore_empty=True, frozen=True)

    host: str = "127.0.0.1"
    port: int = Field(default=8900, ge=0, le=65535)
    token: SecretStr | None = None
    database_url: SecretStr | None = None
    data_dir: Path = Field(default_factory=default_folder)
    public_url: str | None = None
    role: Literal["all", "collector", "web"] = "all"
    slack_webhook_url: SecretStr | None = None
    webhook_url: SecretStr | None = None
    webhook_secret: SecretStr | None = None
    rules: Path | None = None
    allow_private_webhooks: bool = False

    @field_validator("public_url")
    @classmethod
    def _address(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("http://", "https://")):
            raise ValueError("must begin with http:// or https://")
        return value.rstrip("/") if value is not None else None

    @field_validator("token")
    @classmethod
    def _long_enough(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and len(value.get_secret_value()) < 16:
            raise ValueError("must have at least 16 characters; `python -c 'import secrets; print(secrets.token_urlsafe(32))'` makes one")
        return value

    @model_validator(mode="after")
    def _guarded(self) -> Settings:
        if self.token is None and not is_loopback(self.host):
            raise ValueError(f"listening on {self.host} would let anyone on the network in; set VITALS_TOKEN, or listen on 127.0.0.1")
        return self

    @property
    def url(self) -> str:
        """The address of the pages, without a slash at the end."""
        host = "127.0.0.1" if self.host in ("0.0.0.0", "::", "") else self.host
        return self.public_url or f"http://{f'[{host}]' if ':' in host else host}:{self.port}"


def load(**overrides: object) -> Settings:
    """The settings of the environment with ``overrides`` (None means not given). Raises SettingsError with one sentence."""
    given = _secret_files() | {key: value for key, value in overrides.items() if value is not None}
    try:
        return Settings(**given)  # type: ignore[arg-type]
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        reason = first["msg"].removeprefix("Value error, ")
        where = f"VITALS_{str(first['loc'][0]).upper()}: " if first["loc"] else ""
        raise SettingsError(f"{where}{reason[0].lower() if where else reason[0].upper()}{reason[1:]}.") from None


def _secret_files() -> dict[str, object]:
    """The secrets that ``VITALS_..._FILE`` names, as container secrets are given; a variable that holds the secret itself goes first."""
    found: dict[str, object] = {}
    for name in SECRETS:
        variable = f"VITALS_{name.upper()}"
        if (path := os.environ.get(f"{variable}_FILE")) and not os.environ.get(variable):
            try:
                found[name] = Path(path).read_text("utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
                raise SettingsError(f"{variable}_FILE: {path} cannot be read: {reason}.") from None
            if not found[name]:
                raise SettingsError(f"{variable}_FILE: {path} is empty.")
    return found


def rules(settings: Settings) -> Rules:
    """The rules file that the settings name. Raises SettingsError with one line per problem."""
    if settings.rules is None:
        return Rules()
    try:
        return parse(settings.rules.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"VITALS_RULES: {settings.rules} cannot be read: {getattr(error, 'strerror', None) or error}.") from None
    except RulesError as error:
        raise SettingsError("\n".join(f"VITALS_RULES: {settings.rules}, {problem}" for problem in error.problems)) from None


def channels(settings: Settings, ruled: Rules) -> list[Channel]:
    """Who can be told: the channels of the environment and those of the rules file. SettingsError has a line for each that is wrong."""
    private, folder = settings.allow_private_webhooks, settings.rules.parent if settings.rules is not None else Path()
    slack, hook, secret = (_shown(each) for each in (settings.slack_webhook_url, settings.webhook_url, settings.webhook_secret))
    wanted: list[tuple[str, str, Callable[[], Channel]]] = []
    if slack is not None:
        wanted.append(("slack", "VITALS_SLACK_WEBHOOK_URL", lambda: Slack("slack", slack, private=private)))
    if hook is not None:
        wanted.append(("webhook", "VITALS_WEBHOOK_URL or VITALS_WEBHOOK_SECRET", lambda: Webhook("webhook", hook, secret, private=private)))
    for receiver in ruled.receivers:
        place = f"VITALS_RULES: {settings.rules}, channel {receiver.name}"
        wanted.append((receiver.name, place, partial(setup.build, receiver, folder, private=private)))
    found, problems = dict[str, Channel](), []
    if hook is None and secret is not None:
        try:
            signer(secret)
        except ChannelError as error:
            problems.append(f"VITALS_WEBHOOK_SECRET: {error}.")
    for name, place, make in wanted:
        try:
            if name in found:
                raise ChannelError(f"VITALS_{'SLACK_' if name == 'slack' else ''}WEBHOOK_URL sets up a channel of this name too; rename one")
            found[name] = make()
        except ChannelError as error:
            problems.append(f"{place}: {error}.")
    missing = dict.fromkeys(name for route in ruled.routes for name in route.channels if name not in {each for each, _, _ in wanted})
    problems += [f"VITALS_RULES: {settings.rules}: a route names the channel {name}, and nothing sets it up." for name in missing]
    if problems:
        raise SettingsError("\n".join(problems))
    return list(found.values())


def declared(settings: Settings, ruled: Rules) -> dict[str, str]:
    """The names of the channels that are set up, each with its kind; nothing is built."""
    found = {"slack": settings.slack_webhook_url, "webhook": settings.webhook_url}
    return {name: name for name, url in found.items() if url is not None} | {each.name: each.kind for each in ruled.receivers}


def _shown(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()


def is_loopback(host: str) -> bool:
    """Whether ``host`` can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
