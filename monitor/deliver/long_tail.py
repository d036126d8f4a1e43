"""Everything else: Telegram, Discord, Teams, ntfy, PagerDuty and a hundred more through the library apprise (extra ``apprise``).

apprise says whether a service took a message and not why; its services keep no key for deduplication, so a repetition shows twice.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from monitor.deliver.channel import ChannelError, Receipt, TransportError
from monitor.deliver.letter import Letter, plain
from monitor.deliver.post import TIMEOUT_S

if TYPE_CHECKING:
    from apprise import Apprise

_TYPES = {"critical": "failure", "warning": "warning", "resolved": "success", "ok": "success"}


class LongTail:
    """Sends to apprise's ``url`` (https://appriseit.com/services), which is a secret. Raises ChannelError where apprise is missing or does not
    know the address."""

    interval_s = 1.0

    def __init__(self, name: str, url: str, *, timeout_s: float = TIMEOUT_S) -> None:
        self.name = name
        self._target, self._service = _target(url)
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
