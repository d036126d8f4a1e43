"""A real SMTP server whose answers are scripted."""

from __future__ import annotations

import asyncio
import email
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.policy import default
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult


@dataclass(slots=True)
class Mailserver:
    """Listens on a free port of 127.0.0.1. ``rcpt(address)`` and ``data(n)`` give an answer such as ``451 later`` for each recipient and for the
    n-th message (from 1); ``cut`` drops the connection. With ``tls`` it offers STARTTLS and asks for ``password``."""

    rcpt: Callable[[str], str] = lambda address: "250 OK"
    data: Callable[[int], str] = lambda n: "250 OK"
    tls: ssl.SSLContext | None = None
    password: str = ""
    taken: list[EmailMessage] = field(default_factory=list)
    tried: int = 0
    recipients: list[list[str]] = field(default_factory=list)
    _server: asyncio.Server | None = None

    async def __aenter__(self) -> Mailserver:
        more: dict[str, Any] = {}
        if self.tls is not None:
            more = {"tls_context": self.tls, "require_starttls": True, "auth_required": bool(self.password), "authenticator": self._authenticate}
        self._server = await asyncio.get_running_loop().create_server(lambda: SMTP(self, hostname="localhost", **more), "127.0.0.1", 0)
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    def _authenticate(self, server: SMTP, session: Any, envelope: Any, mechanism: str, given: Any) -> AuthResult:
        return AuthResult(success=given.password.decode() == self.password, handled=False)

    async def handle_RCPT(self, server: SMTP, session: Any, envelope: Any, address: str, options: Any) -> str:
        answer = self.rcpt(address)
        if answer.startswith("250"):
            envelope.rcpt_tos.append(address)
        return answer

    async def handle_DATA(self, server: SMTP, session: Any, envelope: Any) -> str:
        self.tried += 1
        answer = self.data(self.tried)
        if answer.startswith("250"):
            self.taken.append(email.message_from_bytes(envelope.content, policy=default))
            self.recipients.append(list(envelope.rcpt_tos))
        if answer == "cut":
            server.transport.abort()
        return answer
