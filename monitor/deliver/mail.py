"""E-mail by SMTP: a letter as text and as HTML, one message for all recipients.

A mail server keeps no key for deduplication, but each message has the letter's uid as its Message-ID, by which mail programs know a repetition,
and names its story as a reference, by which they keep an incident together.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from functools import cache
from pathlib import Path

import aiosmtplib
import jinja2

from monitor.deliver.channel import ChannelError, MessageRefused, Receipt, TransportError
from monitor.deliver.letter import Letter, plain
from monitor.deliver.post import TIMEOUT_S, public_address, refuse_private

PORTS = {"starttls": 587, "tls": 465, "none": 25}
"""How the connection is guarded (RFC 3207, RFC 8314), and the port that goes with it."""

MAX_SUBJECT = 180

_POLICY = SMTP.clone(max_line_length=998, cte_type="7bit")
"""As long as lines may be (RFC 5322, 2.1.1): the library folds a subject of 70 characters into an empty line and the rest."""

_COLOURS = {"critical": "#b3261e", "warning": "#c2570c", "watch": "#b58900", "resolved": "#0d7042", "ok": "#0d7042"}


class Mail:
    """Sends from ``sender`` to ``recipients`` by the server at ``host``, which must be on the public internet unless ``private``. Raises ChannelError
    for a wrong setting."""

    interval_s = 1.0

    def __init__(
        self,
        name: str,
        host: str,
        sender: str,
        recipients: Sequence[str],
        *,
        port: int | None = None,
        tls: str = "starttls",
        username: str | None = None,
        password: str | None = None,
        private: bool = False,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self.name = name
        self._host, self._port, self._tls = host, PORTS[tls] if port is None else port, tls
        if not 0 < self._port < 65536:
            raise ChannelError(f"port must be between 1 and 65535, not {port}")
        if not private:
            refuse_private(host)
        self._private = private
        if (username is None) != (password is None):
            raise ChannelError("username and password_env (or password_file) go together")
        if password is not None and tls == "none":
            raise ChannelError('a password would travel in the clear; set tls to "starttls" or "tls"')
        self._sender, self._recipients = _address("from", sender), [_address("to", each) for each in recipients]
        self._login = (username, password)
        self._timeout_s = timeout_s

    def __repr__(self) -> str:
        return f"Mail({self.name!r}, host={self._host!r})"

    @property
    def about(self) -> str:
        return f"e-mail to {', '.join(each.addr_spec for each in self._recipients)} by {self._host}"

    async def send(self, letter: Letter) -> Receipt:
        message, began = write(letter, self._sender, self._recipients), time.monotonic()
        try:
            async with asyncio.timeout(self._timeout_s):
                refused = await self._deliver(message)
        except TimeoutError:
            raise TransportError(f"{self._host} did not answer within {self._timeout_s:g} s") from None
        except (aiosmtplib.SMTPException, OSError) as error:
            raise meaning(self._host, error) from None
        note = f"{self._host} refused {', '.join(refused)}; the others got it" if refused else None
        return Receipt(250, (time.monotonic() - began) * 1000, note)

    async def close(self) -> None:
        """There is no connection between messages."""

    async def _deliver(self, message: EmailMessage) -> list[str]:
        """The recipients that the server refused while it took the message for others."""
        username, password = self._login
        client = aiosmtplib.SMTP(
            hostname=self._host,
            **({"port": self._port} if self._private else {"sock": await _connected(self._host, self._port)}),
            timeout=self._timeout_s,
            username=username,
            password=password,
            use_tls=self._tls == "tls",
            start_tls=self._tls == "starttls",
        )
        async with client:
            refused, _ = await client.sendmail(self._sender.addr_spec, [each.addr_spec for each in self._recipients], message.as_bytes())
        return [f"{address} ({answer.code})" for address, answer in refused.items()]


async def _connected(host: str, port: int) -> socket.socket:
    """A connection to the very address of ``host`` that was found to be public."""
    address = await public_address(host, port)
    found = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    found.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(found, (address, port))
    except BaseException:
        found.close()
        raise
    return found


def write(letter: Letter, sender: Address, recipients: Sequence[Address]) -> EmailMessage:
    """The message with both alternatives."""
    message = EmailMessage(policy=_POLICY)
    message["From"], message["To"] = sender, list(recipients)
    message["Subject"] = _line(letter.summary, MAX_SUBJECT)
    message["Date"] = letter.at
    message["Message-ID"] = _reference(letter.uid, sender)
    if letter.story:
        message["References"] = message["In-Reply-To"] = _reference(letter.story, sender)
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(_clean(plain(letter)))
    message.add_alternative(_clean(html(letter)), subtype="html")
    return message


def html(letter: Letter) -> str:
    """The letter as a page on its own, everything in it escaped."""
    return _template().render(letter=letter, colour=_COLOURS.get(letter.state, "#155fa8"))


@cache
def _template() -> jinja2.Template:
    path = Path(__file__).with_name("letter.html.jinja")
    return jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined).from_string(path.read_text("utf-8"))


def meaning(host: str, error: Exception) -> TransportError:
    """What a failed conversation means for this message and for the channel; SMTP codes from 500 on are permanent (RFC 5321, 4.2.1)."""
    if isinstance(error, aiosmtplib.SMTPRecipientsRefused):
        # Temporary as soon as one of them is: the message then waits for that one.
        codes = [each.code for each in error.recipients]
        said = ", ".join(f"{each.recipient} ({each.code})" for each in error.recipients)
        return TransportError(f"{host} refused every recipient: {said}", permanent=min(codes) >= 500, status=min(codes))
    if isinstance(error, aiosmtplib.SMTPResponseException):
        sentence = f"{host} answered {error.code}: {_line(error.message, 200)}"
        if isinstance(error, aiosmtplib.SMTPDataError) and error.code >= 500:
            return MessageRefused(sentence, error.code)
        return TransportError(sentence, permanent=error.code >= 500, status=error.code if error.code > 0 else None)
    certificate = next((each for each in _causes(error) if isinstance(each, ssl.SSLCertVerificationError)), None)
    if certificate is not None:
        return TransportError(f"the certificate of {host} is not trusted: {certificate.verify_message}", permanent=True)
    if type(error) is aiosmtplib.SMTPException or isinstance(error, aiosmtplib.SMTPNotSupported):  # no STARTTLS, no AUTH
        return TransportError(f"{host} cannot do what the channel needs: {_line(error.message, 200)}", permanent=True)
    return TransportError(f"the connection to {host} failed: {_line(str(error), 200) or type(error).__name__}")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _address(key: str, text: str) -> Address:
    try:
        found = Address(addr_spec=text.strip())
    except (ValueError, IndexError) as error:
        raise ChannelError(f"{key} holds {text!r}, which is no e-mail address: {error}") from None
    if not found.username or not found.domain or not text.isascii():
        raise ChannelError(f"{key} holds {text!r}, which is no e-mail address")
    return found


def _reference(uid: str, sender: Address) -> str:
    return f"<{uid}@{sender.domain}>"


def _line(text: str, limit: int) -> str:
    text = " ".join(_clean(text).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _clean(text: str) -> str:
    """Without control characters, which mail may not hold, but tabs and line ends."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", "�", text.replace("\r\n", "\n"))
