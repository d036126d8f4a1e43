"""The letter that tests a channel. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from monitor.deliver.letter import Excerpt


@dataclass(frozen=True, slots=True)
class Trial:
    """Clearly no alert. ``channel`` is the name of the channel that it tests."""

    uid: str
    at: datetime
    channel: str
    link: str = ""

    link_label = "Open rlvitals"
    story = ""
    standing = ""
    thread = None
    state = "information"
    verdict = "This is a test. No run is ill; alerts will arrive here."
    numbers: ClassVar[tuple[tuple[str, str], ...]] = ()
    curve = ""
    excerpts: ClassVar[tuple[Excerpt, ...]] = ()

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
