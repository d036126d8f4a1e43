"""Telling again: an open critical alarm that nobody has acknowledged is sent once more after its route's time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from sqlalchemy.ext.asyncio import AsyncEngine

from monitor.alerts.routing import Route, matches, repeats
from monitor.store import evaluation
from monitor.store.database import transaction
from monitor.store.repeats import send_again, unanswered

LOOK_EVERY_S = 5.0
"""How often they are looked for, or as often as a route repeats, whichever is more often."""


class Repeating:
    """Looks for what to tell again, by ``routes``. ``born`` is called when there is something to send."""

    def __init__(self, engine: AsyncEngine, routes: Sequence[Route], born: Callable[[], None]) -> None:
        self.engine = engine
        self.routes = tuple(route for route in routes if route.repeat_s is not None)
        self._born = born
        self._look_at = 0.0

    async def step(self) -> bool:
        """Always False: whoever calls may pause."""
        if time.monotonic() >= self._look_at:
            least = min(route.repeat_s or 0.0 for route in self.routes)
            self._look_at = time.monotonic() + min(LOOK_EVERY_S, least)
            await self._look(least)
        return False

    async def _look(self, least_s: float) -> None:
        now = datetime.now(UTC)
        async with transaction(self.engine) as conn:
            silences = await evaluation.silences(conn)
            again = [
                each.delivery
                for each in await unanswered(conn, least_s)
                if each.waited_s >= repeats(each.facts, now, self.routes).get(each.channel, float("inf"))
                and not any(now < silence.until and matches(silence.matcher, each.facts) for silence in silences)
            ]
            if again:
                await send_again(conn, again)
        if again:
            self._born()
