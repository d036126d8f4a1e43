"""What can be set from outside: environment variables named ``VITALS_...`` and their defaults."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from monitor.store.embedded import default_folder

ROLES = ("all", "collector", "web")


class SettingsError(ValueError):
    """A setting is wrong; the message is one sentence that names it."""


class Settings(BaseSettings):
    """Every setting; the environment variable is the name in upper case with ``VITALS_`` before it.

    ``database_url``: an existing PostgreSQL (15 or later); without it the embedded server in ``data_dir`` is used.
    ``host``, ``port``: where the collector listens. Any address but loopback needs ``token``, and then writing and the pages need it too.
    ``public_url``: the address that messages link to, if it is not the one listened on.
    ``role``: ``collector`` takes data, ``web`` shows pages, ``all`` does both.
    ``slack_webhook_url``, ``webhook_url``, ``webhook_secret``: where alerts go; the secret signs the generic webhook (``whsec_...``).
    ``rules``: a ``vitals.toml`` with thresholds of detectors (``vitals rules``); read when the worker starts.
    ``allow_private_webhooks``: alerts may also go to addresses that are not on the public internet, such as this machine.
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
    try:
        return Settings(**{key: value for key, value in overrides.items() if value is not None})  # type: ignore[arg-type]
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        reason = first["msg"].removeprefix("Value error, ")
        where = f"VITALS_{str(first['loc'][0]).upper()}: " if first["loc"] else ""
        raise SettingsError(f"{where}{reason[0].lower() if where else reason[0].upper()}{reason[1:]}.") from None


def is_loopback(host: str) -> bool:
    """Whether ``host`` can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
