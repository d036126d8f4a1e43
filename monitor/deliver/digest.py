"""The letter about many changes at once: how many of what, and the worst. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from monitor.alerts.book import rank
from monitor.alerts.entry import Entry
from monitor.deliver.letter import Excerpt
from monitor.detect.words import counted

LINES = 10
"""Of counts, and of the worst."""


@dataclass(frozen=True, slots=True)
class Digest:
    """``entries`` in the order in which they happened; ``collected`` says that they were gathered on purpose, not because there were too many.

    ``link`` is the page of what is open, ``own_link`` the one that names every change of this digest with its incident.
    """

    uid: str
    at: datetime
    entries: tuple[Entry, ...]
    link: str = ""
    collected: bool = False
    own_link: str = ""

    story = ""
    standing = ""
    thread = None
    verdict = ""
    curve = ""
    excerpts: ClassVar[tuple[Excerpt, ...]] = ()

    @property
    def links(self) -> tuple[tuple[str, str], ...]:
        return tuple((words, link) for words, link in (("Open the alerts", self.link), ("Every change of this digest", self.own_link)) if link)

    @property
    def state(self) -> str:
        return self.worst[0].state

    @property
    def worst(self) -> tuple[Entry, ...]:
        """All entries, the most severe first; of equal ones the earlier."""
        return tuple(sorted(self.entries, key=lambda each: -rank(each.state)))

    @property
    def runs(self) -> int:
        return len({each.run for each in self.entries})

    @property
    def title(self) -> str:
        word = "collected" if self.collected else "at once"
        return f"{counted(len(self.entries), 'change')} of alerts {word}, in {counted(self.runs, 'run')}"

    @property
    def summary(self) -> str:
        first = self.worst[0]
        return f"{self.title}; the worst: {first.title.rstrip('.')} ({first.project} / {first.run_name}, step {first.step})"

    @property
    def numbers(self) -> tuple[tuple[str, str], ...]:
        counts = Counter(each.state for each in self.worst)
        return tuple((state.capitalize() if state != "ok" else "Over", f"{count:,}") for state, count in counts.items())

    @property
    def counts(self) -> tuple[tuple[str, str, int], ...]:
        """Project, detector and how many, the most first."""
        found = Counter((each.project, each.detector) for each in self.entries)
        return tuple((project, detector, count) for (project, detector), count in found.most_common())

    @property
    def paragraphs(self) -> tuple[tuple[str, str], ...]:
        counts = [f"{project}, {detector}: {count:,}" for project, detector, count in self.counts]
        worst = [f"{each.state}: {each.title.rstrip('.')} ({each.project} / {each.run_name}, step {each.step:,})" for each in self.worst]
        return ("By project and detector", _lines(counts)), ("The worst", _lines(worst))

    @property
    def small(self) -> tuple[str, ...]:
        first, last = (each(entry.at for entry in self.entries) for each in (min, max))
        return f"{first:%Y-%m-%d %H:%M:%S} to {last:%Y-%m-%d %H:%M:%S} UTC", "none of them is sent again one by one"


def _lines(written: Iterable[str]) -> str:
    every = list(written)
    more = [f"and {len(every) - LINES:,} more"] if len(every) > LINES else []
    return "\n".join(every[:LINES] + more)
