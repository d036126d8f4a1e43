"""Everything else: Telegram, Discord, Teams, ntfy, PagerDuty and a hundred more through the library apprise (extra ``apprise``).

apprise says whether a service took a message and not why; its services keep no key for deduplication, so a repetition shows twice.
"""

from __future__ import annotations

import asyncio
import logging
import time
import urllib.request
from typing import TYPE_CHECKING, Any

from monitor.deliver.channel import ChannelError, Receipt, TransportError
from monitor.deliver.letter import Letter, plain
from monitor.deliver.post import TIMEOUT_S, public_address, refuse_private

if TYPE_CHECKING:
    from apprise import Apprise

_TYPES = {"critical": "failure", "warning": "warning", "resolved": "success", "ok": "success"}


class LongTail:
    """Sends to apprise's ``url`` (https://appriseit.com/services), which is a secret. Raises ChannelError where apprise is missing or does not
    know the address.

    A service that runs where its address says (json://, gotify://, mailto:// ...) must be on the public internet unless ``private``. apprise
    connects by itself, so that the name is checked before each message and not pinned to the address that was checked.
    """

    interval_s = 1.0

    def __init__(self, name: str, url: str, *, private: bool = False, timeout_s: float = TIMEOUT_S) -> None:
        self.name = name
        self._target, self._service = _target(url)
        self._guarded = None if private else _host(self._target[0])
        if self._guarded is not None:
            refuse_private(self._guarded)
        self._timeout_s = timeout_s

    def __repr__(self) -> str:
        return f"LongTail({self.name!r}, service={self._service!r})"

    @property
    def about(self) -> str:
        return f"{self._service} by apprise"

    async def send(self, letter: Letter) -> Receipt:
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._timeout_s):
                if self._guarded is not None:
                    await public_address(self._guarded, 443)
                taken = await self._target.async_notify(plain(letter), letter.summary, _TYPES.get(letter.state, "info"), body_format="text")
        except TimeoutError:
            raise TransportError(f"{self._service} did not answer within {self._timeout_s:g} s") from None
        if not taken:
            raise TransportError(f"{self._service} did not take the message; `apprise -vv` with the channel's address says why")
        return Receipt(None, (time.monotonic() - began) * 1000)

    async def close(self) -> None:
        """There is no connection between messages."""


def _target(url: str) -> tuple[Apprise, str]:
    try:
        import apprise
    except ModuleNotFoundError:
        raise ChannelError("channels of kind apprise need the package apprise; run: pip install 'rlvitals[apprise]'") from None
    logging.getLogger("apprise").setLevel(logging.CRITICAL)  # it logs addresses, which hold secrets
    target = apprise.Apprise(asset=apprise.AppriseAsset(app_id="rlvitals", app_desc="rlvitals", app_url=""))
    if not target.add(url):
        raise ChannelError("apprise does not know this address; https://appriseit.com/services lists what it takes")
    return target, str(target[0].service_name)


def _host(service: Any) -> str | None:
    """The host that ``service`` connects to, where its address names one; a service of its own host has a token in that place."""
    if mailserver := getattr(service, "smtp_host", None):
        return str(mailserver)
    named = service.host if any("{host}" in each for each in service.templates) and not _proxied() else None
    return named if isinstance(named, str) and named else None


def _proxied() -> bool:
    """Whether a proxy resolves and connects instead."""
    return bool(urllib.request.getproxies().keys() & {"http", "https"})
