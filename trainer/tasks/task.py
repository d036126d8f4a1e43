"""One task: what the agent is told, where it starts, and what counts as solved."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Task:
    """A code repair (``lines`` and ``tests``) or a sum (``answer``).

    ``prompt`` is what the agent is told, in words of the vocabulary. ``lines`` is the source at the start, ``fixed`` one right solution of it
    and ``mistakes`` plausible wrong replacements by line number; a test is a Python expression in spaced words that is true when it passes.
    The four ``tests`` are the hidden ones: the agent may read and run a copy, only the originals decide the audit reward.
    """

    family: str
    difficulty: int
    prompt: tuple[str, ...]
    lines: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    mistakes: tuple[tuple[int, str], ...] = ()
    answer: str | None = None

    @property
    def key(self) -> str:
        """Names the task; equal keys are equal tasks."""
        return f"{self.family}: {' '.join(self.prompt)} | {' / '.join(self.lines)}"

    @property
    def wrong_lines(self) -> tuple[int, ...]:
        """Indices of the lines that a right fix changes."""
        return tuple(i for i, (now, good) in enumerate(zip(self.lines, self.fixed, strict=True)) if now != good)


def source(lines: tuple[str, ...] | list[str]) -> str:
    """Spaced words as Python source: the first line is the ``def``, the rest its body."""
    return "\n".join([lines[0], *(" " + line for line in lines[1:])])
