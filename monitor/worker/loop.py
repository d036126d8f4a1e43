"""One worker process's share of the work."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from sqlalchemy.ext.asyncio import AsyncEngine

from monitor.alerts.routing import Route
from monitor.alerts.rules import Rules
from monitor.deliver.channel import Channel
from monitor.store import presence
from monitor.store.database import DatabaseUnreachable
from monitor.worker.judging import Judging
from monitor.worker.pace import Pace, named
from monitor.worker.repeating import Repeating
from monitor.worker.sending import Sending

log = logging.getLogger("vitals.worker")


class Worker:
    """One process's share of the work. ``link`` is the address of the pages; ``channels`` carry the alerts as ``routes`` say;
    ``rules`` hold the thresholds that differ from the defaults."""

    def __init__(
        self,
        engine: AsyncEngine,
        channels: Sequence[Channel],
        *,
        routes: Sequence[Route] = (),
        link: str = "",
        pace: Pace = Pace(),
        rules: Rules = Rules(),
    ) -> None:
        self.engine = engine
        self.channels = tuple(channels)
        self.routes = tuple(routes)
        self.link = link
        self.pace = pace
        self._away, self._since = False, 0.0
        self._due = {channel.name: asyncio.Event() for channel in channels}

        names = [channel.name for channel in self.channels]
        self.judging = Judging(engine, names, routes, pace, self._wake, rules)
        self.sending = Sending(engine, link, pace)
        self.repeating = Repeating(engine, routes, self._wake)

    async def run(self, stop: asyncio.Event) -> None:
        """Works until ``stop`` is set, then lets the transaction and the sends under way end. A dead database is waited for."""
        names = [channel.name for channel in self.channels]
        loops = [asyncio.create_task(self._forever(self.judging.step, stop), name="evaluate")]
        if self.repeating.routes:
            loops.append(asyncio.create_task(self._forever(self.repeating.step, stop), name="repeat"))
        for channel in self.channels:
            loops.append(asyncio.create_task(self._forever(partial(self.deliver, channel), stop, self._due[channel.name]), name=channel.name))
        alive = asyncio.create_task(presence.keep_alive(self.engine, presence.WORKER))
        log.info("working; channels: %s", ", ".join(names) or "none")
        await stop.wait()
        alive.cancel()
        for wake in self._due.values():
            wake.set()
        _, late = await asyncio.wait(loops, timeout=self.pace.grace_s)
        for task in late:
            task.cancel()
        await asyncio.gather(*loops, alive, return_exceptions=True)
        with contextlib.suppress(DatabaseUnreachable, TimeoutError):
            async with asyncio.timeout(self.pace.grace_s):
                await self.sending.record()
        for channel in self.channels:
            await channel.close()
        log.info("stopped")

    async def _forever(self, work: Callable[[], Awaitable[bool]], stop: asyncio.Event, wake: asyncio.Event | None = None) -> None:
        """Repeats ``work``, which says whether there may be more; pauses when there is not, and longer while the database is away."""
        missed = 0
        while not stop.is_set():
            pause, begun = self.pace.idle_s, time.monotonic()
            try:
                pause = 0.0 if await work() else pause
                missed = 0
                if self._away and begun > self._since:
                    self._turn(False, "the database is back")
            except DatabaseUnreachable as error:
                if not self._away and begun > self._since:
                    self._turn(True, f"{error} Waiting for it.")
                missed += 1
                pause = min(2.0, 0.2 * 2.0 ** min(missed, 6)) * (0.5 + random.random() / 2)
            except Exception as error:
                log.error("unexpected: %s", named(error))
                pause = 1.0
            if pause:
                await _sleep(pause, stop, wake)

    def _turn(self, away: bool, sentence: str) -> None:
        """The database went or came. What was begun before that says nothing of it any more, whatever comes of it."""
        log.log(logging.WARNING if away else logging.INFO, sentence)
        self._away, self._since = away, time.monotonic()

    def _wake(self) -> None:
        for wake in self._due.values():
            wake.set()

    async def evaluate(self) -> bool:
        """Judges one run; False if none has anything unseen."""
        return await self.judging.evaluate()

    async def watch(self) -> bool:
        """Looks at one run that is overdue or ended; False if there is none."""
        return await self.judging.watch()

    async def deliver(self, channel: Channel) -> bool:
        """Sends what is due on a channel; False if nothing was."""
        self._due[channel.name].clear()
        return await self.sending.deliver(channel)


async def _sleep(seconds: float, stop: asyncio.Event, wake: asyncio.Event | None) -> None:
    """Pauses, but not past ``stop`` or ``wake``."""
    waits = [asyncio.ensure_future(event.wait()) for event in (stop, wake) if event is not None]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
