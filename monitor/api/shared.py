"""One answer for everybody who asks the same at the same time: fifty open pages of one run cost about as much as one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

Answer = TypeVar("Answer")


class Shared(Generic[Answer]):
    """Answers by question, each worked out once and given to all who ask within ``seconds`` of its start. A failure is given to those who
    wait for it and not kept. Used within one event loop."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._known: dict[Hashable, tuple[float, asyncio.Future[Answer]]] = {}

    async def answer(self, question: Hashable, work: Callable[[], Awaitable[Answer]]) -> Answer:
        """The answer to ``question``: a known one, or what ``work`` makes. Raises what ``work`` raises."""
        now = time.monotonic()
        known = self._known.get(question)
        if known is None or now - known[0] > self._seconds:
            self._known = {key: kept for key, kept in self._known.items() if now - kept[0] <= self._seconds}
            known = self._known[question] = now, asyncio.ensure_future(work())
            known[1].add_done_callback(lambda done: self._forget_failure(question, done))
        # Whoever hangs up must not take the answer from the others.
        return known[1].result() if known[1].done() else await asyncio.shield(known[1])

    def _forget_failure(self, question: Hashable, done: asyncio.Future[Answer]) -> None:
        if (done.cancelled() or done.exception() is not None) and (kept := self._known.get(question)) is not None and kept[1] is done:
            del self._known[question]
