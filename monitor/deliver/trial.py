"""A test of a channel: a letter that is clearly no alert."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar
from uuid import uuid4

from monitor.deliver.channel import Channel, Receipt
from monitor.deliver.letter import Excerpt


@dataclass(frozen=True, slots=True)
class Trial:
    """Clearly no alert. ``channel`` is the name of the channel that it tests."""

    uid: str
    at: datetime
    channel: str
    link: str = ""

    story = ""
    standing = ""
    thread = None
    state = "information"
    verdict = "This is a test. No run is ill; alerts will arrive here."
    numbers: ClassVar[tuple[tuple[str, str], ...]] = ()
    curve = ""
    excerpts: ClassVar[tuple[Excerpt, ...]] = ()

    @property
    def links(self) -> tuple[tuple[str, str], ...]:
        return (("Open rlvitals", self.link),) if self.link else ()

    @property
    def title(self) -> str:
        return f"Test: rlvitals reaches you by the channel {self.channel}"

    @property
    def summary(self) -> str:
        return self.title

    @property
    def paragraphs(self) -> tuple[tuple[str, str], ...]:
        return ()

    @property
    def small(self) -> tuple[str, ...]:
        return "test message", f"{self.at:%Y-%m-%d %H:%M:%S} UTC"


async def send_trial(channel: Channel, link: str = "") -> Receipt:
    """Sends one through ``channel`` and closes it. Raises TransportError."""
    try:
        return await channel.send(Trial(str(uuid4()), datetime.now(UTC), channel.name, link))
    finally:
        await channel.close()
