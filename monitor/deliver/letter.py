"""What people read, before any channel gives it a form: one shape for a change of an alert, a digest and a test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A decoded rollout that shows what the alert is about; ``pick`` says why it was kept (best, worst, random)."""

    step: int
    pick: str
    text: str
    rewards: dict[str, float] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """What it is, with its rewards."""
        rewards = ", ".join(f"{name} {value:.3g}" for name, value in list(self.rewards.items())[:6])
        return f"The {self.pick} rollout of step {self.step:,}" + (f" ({rewards})" if rewards else "")


class Letter(Protocol):
    """``uid`` is the receiver's key for deduplication, ``story`` what later letters of the same incident share, or empty; ``standing`` is the
    story's present state, and ``thread`` what the channel gave back for the first letter of it.

    ``state`` gives the colour. ``numbers`` and ``paragraphs`` are pairs of label and text, ``curve`` a line of block characters or empty, ``small``
    the parts of the small print, ``links`` pairs of words and an address where to read on, the main one first.
    """

    @property
    def uid(self) -> str: ...
    @property
    def story(self) -> str: ...
    @property
    def standing(self) -> str: ...
    @property
    def thread(self) -> Mapping[str, Any] | None: ...
    @property
    def state(self) -> str: ...
    @property
    def at(self) -> datetime: ...
    @property
    def title(self) -> str: ...
    @property
    def summary(self) -> str: ...
    @property
    def verdict(self) -> str: ...
    @property
    def numbers(self) -> tuple[tuple[str, str], ...]: ...
    @property
    def curve(self) -> str: ...
    @property
    def paragraphs(self) -> tuple[tuple[str, str], ...]: ...
    @property
    def excerpts(self) -> tuple[Excerpt, ...]: ...
    @property
    def small(self) -> tuple[str, ...]: ...
    @property
    def links(self) -> tuple[tuple[str, str], ...]: ...


def main_link(letter: Letter) -> str:
    """Where to read on; empty for nowhere."""
    return letter.links[0][1] if letter.links else ""


def plain(letter: Letter) -> str:
    """The letter as text."""
    parts = [letter.title, letter.verdict, "\n".join(f"{label}: {text}" for label, text in letter.numbers)]
    if letter.curve:
        parts.append(letter.curve)
    parts += [f"{label}: {text}" if "\n" not in text else f"{label}:\n{text}" for label, text in letter.paragraphs]
    parts += [f"{each.label}:\n{_indented(each.text)}" for each in letter.excerpts]
    parts += [f"{words}: {address}" for words, address in letter.links]
    parts.append(" · ".join(letter.small))
    return "\n\n".join(part for part in parts if part) + "\n"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines() or ["(empty)"])
