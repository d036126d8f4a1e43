"""The worker: judges what has arrived and sends what is due.

Judging is one transaction per run: claim, load, fold, write transitions with their deliveries and the cursor, commit. Sending happens outside
any transaction. Any number of workers run side by side; each may die at any moment.
"""

from __future__ import annotations

import asyncio
import logging
import random
import signal
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from urllib.parse import quote

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from monitor import wire
from monitor.alerts.book import Transition, is_alarm
from monitor.alerts.judgement import Regime, context, dump_verdict, judge
from monitor.alerts.routing import Decision, Facts, Route, decide
from monitor.deliver.channel import Channel, ChannelError, MessageRefused, TransportError
from monitor.deliver.message import Also, Excerpt, Message, excerpt
from monitor.deliver.retry import Policy
from monitor.deliver.slack import Slack
from monitor.deliver.webhook import Webhook
from monitor.detect.contract import Context, Row
from monitor.settings import Settings, SettingsError
from monitor.store import deliveries, embedded, evaluation
from monitor.store.database import DatabaseUnreachable, create_engine, require_current, transaction
from monitor.store.deliveries import Due, Outcome, Sample
from monitor.store.evaluation import Change, Claim, Item

log = logging.getLogger("vitals.worker")


@dataclass(frozen=True, slots=True)
class Pace:
    """``rows``: at most so many rows and events per transaction. ``idle_s``: pause when there is nothing to do. ``lease_s``: how long a
    delivery belongs to the worker that took it, longer than any send. ``sends``: at once per channel. ``grace_s``: for sends under way when
    asked to stop. Judging a run that failed is tried again after ``retry_s``, doubled each time up to ``retry_cap_s``."""

    rows: int = 256
    idle_s: float = 0.2
    lease_s: float = 30.0
    sends: int = 8
    grace_s: float = 5.0
    retry_s: float = 10.0
    retry_cap_s: float = 3600.0
    policy: Policy = field(default_factory=Policy)


class Worker:
    """One process's share of the work. ``link`` is the address of the pages; ``channels`` carry the alerts as ``routes`` say."""

    def __init__(
        self, engine: AsyncEngine, channels: Sequence[Channel], *, routes: Sequence[Route] = (), link: str = "", pace: Pace = Pace()
    ) -> None:
        self.engine = engine
        self.channels = tuple(channels)
        self.routes = tuple(routes)
        self.link = link
        self.pace = pace
        self._away = False
        self._due = {channel.name: asyncio.Event() for channel in channels}

    async def run(self, stop: asyncio.Event) -> None:
        """Works until ``stop`` is set, then lets the transaction and the sends under way end. A dead database is waited for."""
        names = [channel.name for channel in self.channels]
        loops = [asyncio.create_task(self._forever(self.evaluate, stop), name="evaluate")]
        for channel in self.channels:
            loops.append(asyncio.create_task(self._forever(partial(self.deliver, channel), stop, self._due[channel.name]), name=channel.name))
        log.info("working; channels: %s", ", ".join(names) or "none")
        await stop.wait()
        for wake in self._due.values():
            wake.set()
        _, late = await asyncio.wait(loops, timeout=self.pace.grace_s)
        for task in late:
            task.cancel()
        await asyncio.gather(*loops, return_exceptions=True)
        for channel in self.channels:
            await channel.close()
        log.info("stopped")

    async def _forever(self, work: Callable[[], Awaitable[bool]], stop: asyncio.Event, wake: asyncio.Event | None = None) -> None:
        """Repeats ``work``, which says whether there may be more; pauses when there is not, and longer while the database is away."""
        missed = 0
        while not stop.is_set():
            pause = self.pace.idle_s
            try:
                pause = 0.0 if await work() else pause
                missed = 0
                self._reached()
            except DatabaseUnreachable as error:
                self._lost(error)
                missed += 1
                pause = min(2.0, 0.2 * 2.0 ** min(missed, 6)) * (0.5 + random.random() / 2)
            except Exception as error:
                log.error("unexpected: %s", named(error))
                pause = 1.0
            if pause:
                await _sleep(pause, stop, wake)

    def _lost(self, error: DatabaseUnreachable) -> None:
        if not self._away:
            log.warning("%s Waiting for it.", error)
        self._away = True

    def _reached(self) -> None:
        if self._away:
            log.info("the database is back")
        self._away = False

    async def evaluate(self) -> bool:
        """Judges one run; False if none has anything unseen. A run that cannot be judged is put off and stops no other."""
        claimed: Claim | None = None
        try:
            async with transaction(self.engine) as conn:
                claimed = await evaluation.claim(conn)
                if claimed is None:
                    return False
                began = time.perf_counter()
                items = await evaluation.unseen(conn, claimed, self.pace.rows)
                rows = [item for item in items if item.values is not None]
                judged = judge(claimed.uid, claimed.state, _judgeable(claimed, items), self._about(claimed))
                born = await evaluation.save(
                    conn,
                    claimed,
                    seq=items[-1].seq,
                    rows=claimed.rows + len(rows),
                    state=judged.state,
                    severity=judged.verdict.state,
                    verdict=dump_verdict(judged.verdict),
                    changes=await self._changes(conn, claimed, rows, judged.transitions),
                    open_episodes=judged.book.open,
                    seconds=time.perf_counter() - began,
                )
        except DatabaseUnreachable:
            raise
        except Exception as error:
            if claimed is None:
                raise
            await self._put_off(claimed, error)
            return True
        if born:
            for wake in self._due.values():
                wake.set()
        return True

    def _about(self, claimed: Claim) -> Context:
        return context(algorithm=claimed.algorithm, signal=claimed.signal, task=claimed.task, aux=claimed.aux, config=claimed.config)

    async def _changes(self, conn: AsyncConnection, claimed: Claim, rows: Sequence[Item], moved: Sequence[Transition]) -> list[Change]:
        """Each transition with the time of its row and who is told of it."""
        now, silences, changes = datetime.now(UTC), None, []
        for each in moved:
            decision = Decision(muted=f"{each.held_by} explains it" if each.held_by else None)
            if each.alarms and is_alarm(each.to_state):
                silences = await evaluation.silences(conn) if silences is None else silences
                decision = decide(_facts(claimed, each), now, silences, self.routes, [channel.name for channel in self.channels])
            row = rows[each.index - claimed.rows]
            changes.append(Change(each, row.at, row.seq, decision.channels, decision.muted))
        return changes

    async def _put_off(self, claimed: Claim, error: Exception) -> None:
        wait = min(self.pace.retry_cap_s, self.pace.retry_s * 2.0 ** min(claimed.failures, 30))
        sentence = f"Evaluation failed: {named(error)}. Tried again in {wait:.0f} s; the rows are kept."
        log.error("run %s: %s", claimed.uid, sentence)
        async with transaction(self.engine) as conn:
            await evaluation.fail(conn, claimed, sentence, wait)

    async def deliver(self, channel: Channel) -> bool:
        """Sends what is due on a channel; False if nothing was."""
        self._due[channel.name].clear()
        async with transaction(self.engine) as conn:
            leased = await deliveries.lease(conn, channel.name, self.pace.sends, self.pace.lease_s, self.pace.policy.trip)
        await asyncio.gather(*(self._send(channel, due) for due in leased))
        return bool(leased)

    async def _send(self, channel: Channel, due: Due) -> None:
        try:
            receipt = await channel.send(compose(due, self.link))
            outcome = Outcome("delivered", receipt.status, receipt.latency_ms)
        except TransportError as error:
            outcome = failed(due, error, self.pace.policy, random.random())
            log.warning("channel %s, attempt %d: %s", due.channel, due.attempt, error)
        except Exception as error:
            outcome = failed(due, MessageRefused(named(error)), self.pace.policy, random.random())
            log.error("channel %s: a message could not be written: %s", due.channel, named(error))
        async with transaction(self.engine) as conn:
            await deliveries.record(conn, due, outcome)


def _judgeable(claimed: Claim, items: Sequence[Item]) -> Iterator[Row | Regime]:
    """Rows numbered on from those judged before, and the changes of regime between them."""
    index = claimed.rows
    for item in items:
        if item.values is not None:
            yield Row(index, item.step or 0, item.values)
            index += 1
        elif item.kind == "regime":
            yield Regime()


def _facts(claimed: Claim, moved: Transition) -> Facts:
    return Facts(claimed.project, claimed.uid, claimed.name, moved.detector, moved.organ, moved.to_state, claimed.tags)


def failed(due: Due, error: TransportError, policy: Policy, dice: float) -> Outcome:
    """What to do about a message that was not taken."""
    if isinstance(error, MessageRefused):
        return Outcome("refused", error.status, error=str(error))
    failures = due.failures + 1
    rest = policy.rest(failures, error)
    state = "disabled" if error.permanent else "resting" if rest else "ok"
    return Outcome("failed", error.status, None, str(error), max(policy.wait(due.attempt, dice), error.retry_after or 0.0), rest, state)


def compose(due: Due, link: str) -> Message:
    """The message of a leased delivery."""
    return Message(
        uid=due.uid,
        alert=due.alert,
        run=due.run,
        run_name=due.run_name,
        project=due.project,
        detector=due.detector,
        organ=due.organ,
        from_state=due.from_state,
        to_state=due.to_state,
        reason=due.reason,
        step=due.step,
        opened_step=due.opened_step,
        at=due.at,
        finding=due.finding,
        verdict=due.verdict,
        incident=due.incident,
        cascade=tuple(Also(each.detector, each.severity, each.title, each.since_step) for each in due.cascade),
        link=f"{link}/run/{quote(due.run, safe='')}?step={due.step}" if link else "",
        excerpts=tuple(_excerpt(sample) for sample in due.samples),
    )


def _excerpt(sample: Sample) -> Excerpt:
    text = "\n".join(f"[{turn['role']}] {turn['text']}" for turn in sample.turns)
    rewards = {name: number for name, value in sample.rewards.items() if (number := wire.read_number(value)) is not None}
    return Excerpt(sample.step, sample.pick, excerpt(text), rewards)


def named(error: BaseException) -> str:
    """An error as one line that a maintainer can act on: kind, first line and the place in our code."""
    ours = [frame for frame in traceback.extract_tb(error.__traceback__) if "monitor" in frame.filename]
    place = f" (at {ours[-1].filename.rpartition('/monitor/')[2]}:{ours[-1].lineno})" if ours else ""
    line = (str(error).splitlines() or [""])[0][:300]
    return f"{type(error).__name__}: {line}{place}" if line else f"{type(error).__name__}{place}"


def channels(settings: Settings) -> list[Channel]:
    """The channels that the settings name. Raises SettingsError for one that is wrongly set up."""
    private, found = settings.allow_private_webhooks, list[Channel]()
    try:
        if settings.slack_webhook_url is not None:
            found.append(Slack("slack", settings.slack_webhook_url.get_secret_value(), private=private))
        if settings.webhook_url is not None:
            secret = settings.webhook_secret.get_secret_value() if settings.webhook_secret is not None else None
            found.append(Webhook("webhook", settings.webhook_url.get_secret_value(), secret, private=private))
    except ChannelError as error:
        names = {"slack": "VITALS_SLACK_WEBHOOK_URL", "webhook": "VITALS_WEBHOOK_URL or VITALS_WEBHOOK_SECRET"}
        raise SettingsError(f"{names['webhook' if found or settings.slack_webhook_url is None else 'slack']}: {error}.") from None
    return found


async def run(settings: Settings, *, pace: Pace = Pace()) -> None:
    """Works until SIGTERM or SIGINT. Raises SettingsError for a wrong setting and DatabaseError for an unusable database."""
    url = embedded.cluster(settings.data_dir).url if settings.database_url is None else settings.database_url.get_secret_value()
    carriers = channels(settings)
    engine = create_engine(url, pool_size=len(carriers) + 4, application="rlvitals worker")
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        await require_current(engine)
        await Worker(engine, carriers, link=settings.url, pace=pace).run(stop)
    finally:
        await engine.dispose()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


async def _sleep(seconds: float, stop: asyncio.Event, wake: asyncio.Event | None) -> None:
    """Pauses, but not past ``stop`` or ``wake``."""
    waits = [asyncio.ensure_future(event.wait()) for event in (stop, wake) if event is not None]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
