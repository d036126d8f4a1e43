"""One HTTP POST to somebody else's server: bounded in time and size, no redirects, no private targets, no secret in any error."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import time
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx

from monitor.deliver.channel import ChannelError, MessageRefused, Receipt, TransportError

TIMEOUT_S = 10.0
"""For the whole exchange, name resolution included; a lease must be longer."""

_ANSWER_BYTES = 2**18
_PRIVATE = "{host} is a private address; set VITALS_ALLOW_PRIVATE_WEBHOOKS=1 if messages may go there"
_MESSAGE_AT_FAULT = frozenset((400, 413, 415, 422))
_TRY_LATER = frozenset((408, 409, 425, 429))


class Poster:
    """Posts JSON to one address. ``private`` allows targets that are not on the public internet (loopback, RFC 1918, link-local).

    Without it the name is resolved here and the connection goes to the very address that was checked, so that a name cannot point
    elsewhere between check and use. Where a proxy is configured in the environment, the proxy resolves and connects.
    """

    def __init__(self, url: str, *, private: bool = False, timeout_s: float = TIMEOUT_S) -> None:
        try:
            self._url = httpx.URL(url)
        except (httpx.InvalidURL, ValueError):
            raise ChannelError("the address of the channel is not a URL") from None
        if self._url.scheme not in ("http", "https") or not self._url.host:
            raise ChannelError("the address of the channel must start with https:// or http:// and name a host")
        if not private and not _proxied(self._url):
            refuse_private(self._url.host)
        self._private = private
        self._timeout_s = timeout_s
        self._client: httpx.AsyncClient | None = None
        for library in ("httpx", "httpcore"):  # both log whole addresses, which hold secrets
            logging.getLogger(library).setLevel(logging.WARNING)

    @property
    def host(self) -> str:
        return self._url.host

    async def post(self, body: bytes, headers: Mapping[str, str]) -> Receipt:
        """Sends ``body``. Raises TransportError, whose text names the host and never the path, where secrets live."""
        return (await self.ask(body, headers))[0]

    async def ask(self, body: bytes, headers: Mapping[str, str]) -> tuple[Receipt, bytes]:
        """Like :meth:`post`, with what was answered."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._timeout_s):
                response, answer = await self._exchange(body, headers)
        except TimeoutError:
            raise TransportError(f"{self.host} did not answer within {self._timeout_s:g} s") from None
        except (httpx.HTTPError, OSError) as error:
            raise TransportError(f"the connection to {self.host} failed: {_plain(error)}") from None
        if not response.is_success:
            raise refused(self.host, response.status_code, response.headers, answer[:200].decode(errors="replace"))
        return Receipt(response.status_code, (time.monotonic() - began) * 1000), answer

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def _exchange(self, body: bytes, headers: Mapping[str, str]) -> tuple[httpx.Response, bytes]:
        if self._client is None:
            self._client = httpx.AsyncClient(follow_redirects=False, timeout=self._timeout_s)
        target, extensions, own = self._url, {}, {"content-type": "application/json", "user-agent": "rlvitals"}
        if not self._private and not _proxied(self._url):
            target = self._url.copy_with(host=await public_address(self._url.host, self._url.port or 443))
            extensions = {"sni_hostname": self._url.host}
            own["host"] = self._url.netloc.decode()
        async with self._client.stream("POST", target, content=body, headers={**own, **headers}, extensions=extensions) as response:
            answer = b""
            async for chunk in response.aiter_bytes():
                answer += chunk
                if len(answer) >= _ANSWER_BYTES:
                    break
        return response, answer


def refuse_private(host: str) -> None:
    """Raises ChannelError if ``host`` is private without asking any name server: no address of the public internet, or this machine's name."""
    if _plainly_private(host):
        raise ChannelError(_PRIVATE.format(host=host))


async def public_address(host: str, port: int) -> str:
    """An address of ``host`` to connect to. Raises TransportError if any of its addresses is not on the public internet."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise TransportError(f"the name {host} could not be resolved: {_plain(error)}") from None
    addresses = [str(entry[4][0]) for entry in found]
    for address in addresses:
        if not ipaddress.ip_address(address.partition("%")[0]).is_global:
            raise TransportError(_PRIVATE.format(host=host), permanent=True)
    return addresses[0]


def refused(host: str, status: int, headers: Mapping[str, str], answer: str = "") -> TransportError:
    """What a status that is not a success means for this message and for the receiver."""
    said = f": {' '.join(answer.split())}" if answer.strip() and answer.isprintable() else ""
    if 300 <= status < 400:
        return TransportError(f"{host} answered {status}, a redirect; set the channel to the final address", permanent=True, status=status)
    if status in _MESSAGE_AT_FAULT:
        return MessageRefused(f"{host} answered {status} and will not take this message{said}", status)
    if status in _TRY_LATER or status >= 500:
        return TransportError(f"{host} answered {status}{said}", status=status, retry_after=retry_after(headers, datetime.now(UTC)))
    return TransportError(f"{host} answered {status}{said}; the channel's address or secret needs attention", permanent=True, status=status)


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds that a ``Retry-After`` header asks for (RFC 9110, 10.2.3: seconds or a date); None without one."""
    raw = headers.get("retry-after", "").strip()
    if raw.isdecimal() and raw.isascii():
        return float(raw)
    try:
        until = parsedate_to_datetime(raw)
    except (TypeError, ValueError):
        return None
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)
    return max((until - now).total_seconds(), 0.0)


def _plainly_private(host: str) -> bool:
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _proxied(url: httpx.URL) -> bool:
    return url.scheme in urllib.request.getproxies() and not urllib.request.proxy_bypass(url.host)


def _plain(error: Exception) -> str:
    """The first line of an error; libraries put addresses into some, which may hold secrets, so those are named by kind only."""
    line = (str(error).splitlines() or [""])[0]
    return type(error).__name__ if "/" in line or not line else line.rstrip(".")
