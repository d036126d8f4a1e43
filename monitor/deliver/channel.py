"""What a channel is: it carries one message to people, and says what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from monitor.deliver.letter import Letter


@dataclass(frozen=True, slots=True)
class Receipt:
    """The receiver took the message. ``status`` is its HTTP or SMTP status, None where there is none; ``latency_ms`` how long it took;
    ``note`` one sentence about what it took less than willingly, None for nothing. ``thread`` comes back with the next letters of the story."""

    status: int | None
    latency_ms: float
    note: str | None = None
    thread: Mapping[str, Any] | None = None


class TransportError(Exception):
    """The receiver did not take the message. The text is one sentence without any secret.

    ``permanent`` says that trying again is of no use until somebody changes the receiver or its address; ``retry_after`` is how many
    seconds the receiver asked for; ``status`` its HTTP or SMTP status, None where it gave none.
    """

    def __init__(self, sentence: str, *, permanent: bool = False, status: int | None = None, retry_after: float | None = None) -> None:
        super().__init__(sentence)
        self.permanent = permanent
        self.status = status
        self.retry_after = retry_after


class MessageRefused(TransportError):
    """The receiver is well but will never take this one message."""

    def __init__(self, sentence: str, status: int | None = None) -> None:
        super().__init__(sentence, permanent=True, status=status)


class ChannelError(ValueError):
    """A channel is wrongly set up; the text is one sentence that names the setting."""


class Channel(Protocol):
    """``name`` identifies the channel in routes, logs and the delivery table; it holds no secret. ``interval_s`` is the least time between two
    messages, 0 for one that takes several at once; ``about`` says in a few words what it is and where it leads, without any secret."""

    interval_s: float

    @property
    def about(self) -> str: ...

    @property
    def name(self) -> str: ...

    async def send(self, letter: Letter) -> Receipt:
        """Delivers ``letter`` or raises :class:`TransportError`; ``letter.uid`` lets the receiver drop a repetition."""
        ...

    async def close(self) -> None:
        """Gives back connections."""
        ...
