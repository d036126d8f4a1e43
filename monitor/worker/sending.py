"""Sending what is due: leased, sent outside any transaction, recorded."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from dataclasses import replace
from urllib.parse import quote

from sqlalchemy.ext.asyncio import AsyncEngine

from monitor import wire
from monitor.alerts.book import name_uid
from monitor.deliver.channel import Channel, MessageRefused, TransportError
from monitor.deliver.digest import Digest
from monitor.deliver.letter import Excerpt
from monitor.deliver.message import Also, Message, excerpt
from monitor.deliver.retry import Policy
from monitor.store import deliveries, digests
from monitor.store.database import DatabaseUnreachable, transaction
from monitor.store.deliveries import Due, Outcome
from monitor.store.digests import Gathered
from monitor.store.enclosures import Sample
from monitor.worker.pace import Pace, named

log = logging.getLogger("vitals.worker")


class Sending:
    """``link`` is the address of the pages, for the messages.

    What came of an attempt is remembered until it is recorded: a database that went away meanwhile costs no second sending.
    """

    def __init__(self, engine: AsyncEngine, link: str, pace: Pace) -> None:
        self.engine = engine
        self.link = link
        self.pace = pace
        self._unrecorded: dict[tuple[type, int, int], tuple[Due | Gathered, Outcome]] = {}

    async def deliver(self, channel: Channel) -> bool:
        """Sends what is due on a channel, as a digest where it was gathered or is too much; False if nothing was. Raises DatabaseUnreachable."""
        await self.record()
        pace, paced = self.pace, channel.interval_s > 0
        async with transaction(self.engine) as conn:
            if not await deliveries.waiting(conn, channel.name):
                return False
            crowd = pace.crowd if paced else None
            gathered = await digests.lease(conn, channel.name, pace.lease_s, pace.policy.trip, crowd=crowd)
            leased = [] if gathered else await deliveries.lease(conn, channel.name, pace.sends, pace.lease_s, pace.policy.trip, paced=paced)
        if gathered is not None:
            await self._send(channel, gathered, max(pace.digest_s, channel.interval_s) if paced else 0.0)
        await asyncio.gather(*(self._send(channel, due, channel.interval_s) for due in leased))
        return bool(gathered or leased)

    async def record(self) -> None:
        """Records what came of attempts while the database was away. Raises DatabaseUnreachable."""
        for due, outcome in list(self._unrecorded.values()):
            await self._record(due, outcome)

    async def _record(self, due: Due | Gathered, outcome: Outcome) -> None:
        key = type(due), due.id, due.attempt
        self._unrecorded.pop(key, None)
        try:
            async with transaction(self.engine) as conn:
                await (digests.record(conn, due, outcome) if isinstance(due, Gathered) else deliveries.record(conn, due, outcome))
        except (DatabaseUnreachable, asyncio.CancelledError):
            self._unrecorded[key] = due, outcome
            raise

    async def _send(self, channel: Channel, due: Due | Gathered, pause_s: float) -> None:
        """Sends and records; the channel gets nothing more for ``pause_s``."""
        try:
            receipt = await channel.send(together(due, self.link) if isinstance(due, Gathered) else compose(due, self.link))
            outcome = Outcome("delivered", receipt.status, receipt.latency_ms, receipt.note, thread=receipt.thread)
        except TransportError as error:
            outcome = failed(due, error, self.pace.policy, random.random())
            log.warning("channel %s, attempt %d: %s", due.channel, due.attempt, error)
        except Exception as error:
            outcome = failed(due, MessageRefused(named(error)), self.pace.policy, random.random())
            log.error("channel %s: a message could not be written: %s", due.channel, named(error))
        with contextlib.suppress(DatabaseUnreachable):
            await self._record(due, replace(outcome, pause_s=pause_s))


def failed(due: Due | Gathered, error: TransportError, policy: Policy, dice: float) -> Outcome:
    """What to do about a message that was not taken."""
    if isinstance(error, MessageRefused):
        return Outcome("refused", error.status, error=str(error))
    failures = due.failures + 1
    rest = policy.rest(failures, error)
    state = "disabled" if error.permanent else "resting" if rest else "ok"
    return Outcome("failed", error.status, None, str(error), policy.wait(due.attempt, error, dice), rest, state)


def together(gathered: Gathered, link: str) -> Digest:
    """The message of a leased digest."""
    pages = (f"{link}/alerts", f"{link}/deliveries?message={gathered.uid}") if link else ("", "")
    return Digest(gathered.uid, gathered.at, gathered.members, pages[0], gathered.collected, pages[1])


def compose(due: Due, link: str) -> Message:
    """The message of a leased delivery; a repetition has an identity of its own, so that no receiver drops it."""
    return Message(
        uid=name_uid(due.uid, "repeat", due.repeats) if due.repeats else due.uid,
        alert=due.alert,
        run=due.run,
        run_name=due.run_name,
        project=due.project,
        detector=due.detector,
        organ=due.organ,
        from_state=due.from_state,
        to_state=due.to_state,
        reason="repeated" if due.repeats else due.reason,
        step=due.step,
        opened_step=due.opened_step,
        at=due.at,
        finding=due.finding,
        verdict=due.verdict,
        incident=due.incident,
        cascade=tuple(Also(each.detector, each.severity, each.title, each.since_step) for each in due.cascade),
        link=f"{link}/run/{quote(due.run, safe='')}?step={due.step}" if link else "",
        excerpts=tuple(_excerpt(sample) for sample in due.samples),
        series=due.series,
        standing=due.standing or due.to_state,
        opened_at=due.opened_at,
        thread=due.thread,
        acted=due.acted,
        incident_link=f"{link}/incident/{due.incident}" if link and due.incident else "",
    )


def _excerpt(sample: Sample) -> Excerpt:
    text = "\n".join(f"[{turn['role']}] {turn['text']}" for turn in sample.turns)
    rewards = {name: number for name, value in sample.rewards.items() if (number := wire.read_number(value)) is not None}
    return Excerpt(sample.step, sample.pick, excerpt(text), rewards)
