"""How a command gives up: one sentence on stderr and an exit code."""

from __future__ import annotations


class CommandError(Exception):
    """A failure the reader can act on. ``code`` is 2 for wrong use or set-up, 1 for a check that did not pass."""

    def __init__(self, sentence: str, code: int = 2) -> None:
        super().__init__(sentence)
        self.code = code
