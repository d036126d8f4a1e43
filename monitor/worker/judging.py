"""Judging: one transaction per run. Claim, load, fold, write transitions with their deliveries and the cursor, commit."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from monitor.alerts import presence
from monitor.alerts.acting import wanted
from monitor.alerts.book import ALARMS, Transition, is_alarm
from monitor.alerts.incident import held_reason
from monitor.alerts.judgement import Arrival, Judgement, Regime, context, dump_verdict, judge, notice
from monitor.alerts.presence import Pace as Rhythm
from monitor.alerts.routing import Decision, Facts, Route, decide, silenced
from monitor.alerts.rules import Rules
from monitor.detect.contract import Context, Finding, Row
from monitor.store import evaluation
from monitor.store import presence as overdue
from monitor.store.database import DatabaseUnreachable, transaction
from monitor.store.evaluation import Change, Claim, Item
from monitor.store.ingest import LATE, ON_TIME
from monitor.store.presence import Overdue
from monitor.worker.pace import Pace, named

log = logging.getLogger("vitals.worker")

LOOK_EVERY_S = 1.0
"""How often silent runs are looked for."""

LOOK_AGAIN_S = 15.0
"""When to look again at a run that was silent while the collector was down."""


class Judging:
    """Judges runs by ``rules`` and decides who is told, by ``routes``, over the channels named ``channels``. ``born`` is called when there is
    something to send."""

    def __init__(
        self, engine: AsyncEngine, channels: Sequence[str], routes: Sequence[Route], pace: Pace, born: Callable[[], None], rules: Rules = Rules()
    ) -> None:
        self.engine = engine
        self.rules = rules
        self.channels = tuple(channels)
        self.routes = tuple(routes)
        self.pace = pace
        self._born = born
        self._look_at = 0.0

    async def step(self) -> bool:
        """Judges one run; when none has anything unseen, looks once a second at those that are silent or ended."""
        if await self.evaluate():
            return True
        if time.monotonic() < self._look_at:
            return False
        more = await self.watch()
        self._look_at = 0.0 if more else time.monotonic() + LOOK_EVERY_S
        return more

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
                judged = judge(claimed.uid, claimed.state, judgeable(claimed.rows, items, self.rules.late_s), self._about(claimed))
                rhythm = _rhythm(presence.load(claimed.state.get("pace")), items)
                changes = await self._changes(conn, claimed, rows, judged.transitions)
                born = await self._save(conn, claimed, judged, changes, items[-1].seq, len(rows), rhythm, time.perf_counter() - began)
        except DatabaseUnreachable:
            raise
        except Exception as error:
            if claimed is None:
                raise
            await self._put_off(claimed, error)
            return True
        if born:
            self._born()
        return True

    async def watch(self) -> bool:
        """Looks at one run that is overdue or ended; False if there is none. One that cannot be judged is left alone for a while."""
        found: Overdue | None = None
        try:
            async with transaction(self.engine) as conn:
                found = await overdue.overdue(conn)
                if found is None:
                    return False
                born = await (self._ended(conn, found) if found.ended_at is not None else self._silent(conn, found))
        except DatabaseUnreachable:
            raise
        except Exception as error:
            if found is None:
                raise
            log.error("run %s: its silence could not be judged: %s", found.claim.uid, named(error))
            async with transaction(self.engine) as conn:
                if found.ended_at is None:
                    await overdue.postpone(conn, found.claim, self.pace.retry_cap_s)
                else:
                    await overdue.settle(conn, found.claim, found.ended_at)
            return True
        if born:
            self._born()
        return True

    async def _silent(self, conn: AsyncConnection, found: Overdue) -> int:
        """Raises a silence, unless we were not looking for as long as it lasted."""
        claimed = found.claim
        rhythm = presence.load(claimed.state.get("pace"))
        book = claimed.state.get("book", {}).get("episodes", {})
        known = any(book[name]["state"] in ALARMS or book[name]["by_hand"] for name in ("stalled", "lost") if name in book)
        severity = "critical" if known else "warning"
        if found.starting_s is None:
            allowed, more = rhythm.allowed(severity), rhythm.allowed("critical") - rhythm.allowed("warning")
            said, since = presence.silent, allowed + found.late_s
        else:
            allowed, more = rhythm.allowed_to_start(severity, lives=found.seen_s <= presence.SPEECHLESS_S), overdue.START_LOOK_S
            said, since = presence.unstarted, found.starting_s
        wait = more if since < allowed else LOOK_AGAIN_S if found.sighted_s is None else presence.WARN_FLOOR_S - found.sighted_s
        if wait > 0:
            await overdue.postpone(conn, claimed, wait)
            return 0
        born = await self._notice(conn, claimed, said(rhythm, since_s=since, unheard_s=found.seen_s, severity=severity))
        if known:
            await overdue.settle(conn, claimed, None)
        else:
            await overdue.postpone(conn, claimed, more)
        return born

    async def _ended(self, conn: AsyncConnection, found: Overdue) -> int:
        rhythm = presence.load(found.claim.state.get("pace"))
        ill = found.state in ("crashed", "killed")
        born = await self._notice(conn, found.claim, presence.crashed(rhythm, found.state, found.end_reason) if ill else None)
        await overdue.settle(conn, found.claim, found.ended_at)
        return born

    async def _notice(self, conn: AsyncConnection, claimed: Claim, finding: Finding | None) -> int:
        judged = notice(claimed.uid, claimed.state, finding, self._about(claimed))
        changes = await self._changes(conn, claimed, [], judged.transitions)
        return await self._save(conn, claimed, judged, changes, claimed.seq, 0, presence.load(claimed.state.get("pace")), 0.0)

    async def _save(
        self, conn: AsyncConnection, claimed: Claim, judged: Judgement, changes: Sequence[Change], seq: int, rows: int, rhythm: Rhythm, seconds: float
    ) -> int:
        allowed = rhythm.allowed("warning")
        return await evaluation.save(
            conn,
            claimed,
            seq=seq,
            rows=claimed.rows + rows,
            state={**judged.state, "pace": presence.dump(rhythm)},
            severity=judged.verdict.state,
            verdict=dump_verdict(judged.verdict),
            changes=changes,
            open_episodes=judged.book.open,
            seconds=seconds,
            silence_s=allowed if math.isfinite(allowed) else None,
        )

    def _about(self, claimed: Claim) -> Context:
        return about(claimed, self.rules)

    async def _changes(self, conn: AsyncConnection, claimed: Claim, rows: Sequence[Item], moved: Sequence[Transition]) -> list[Change]:
        """Each transition with the time of its row, who is told of it, and what its run is asked."""
        now, silences, changes = datetime.now(UTC), None, []
        gathers = any(route.digest_s is not None for route in self.routes)
        for each in moved:
            decision = Decision(muted=held_reason(each.held_by) if each.held_by else None)
            alarm, asked = each.alarms and is_alarm(each.to_state), dict[str, bool]()
            if alarm or (gathers and each.to_state in ("information", "watch") and not each.late):
                silences = await evaluation.silences(conn) if silences is None else silences
                facts = _facts(claimed, each)
                decision = decide(facts, now, silences, self.routes, self.channels)
                if alarm and silenced(facts, now, silences) is None:
                    asked = wanted(facts, self.rules.acts)
            place = each.index - claimed.rows
            at, seq = (rows[place].at, rows[place].seq) if place < len(rows) else (now, claimed.seq)
            changes.append(Change(each, at, seq, decision.channels, decision.muted if alarm or each.held_by else None, decision.digests, asked))
        return changes

    async def _put_off(self, claimed: Claim, error: Exception) -> None:
        wait = min(self.pace.retry_cap_s, self.pace.retry_s * 2.0 ** min(claimed.failures, 30))
        sentence = f"Evaluation failed: {named(error)}. Tried again in {wait:.0f} s; the rows are kept."
        log.error("run %s: %s", claimed.uid, sentence)
        async with transaction(self.engine) as conn:
            await evaluation.fail(conn, claimed, sentence, wait)


def about(claimed: Claim, rules: Rules) -> Context:
    """What the detectors are told of a run; its own rules are found by its identifier or its name."""
    limits = rules.limits(claimed.project, claimed.uid if claimed.uid in rules.runs else claimed.name)
    return context(algorithm=claimed.algorithm, signal=claimed.signal, task=claimed.task, aux=claimed.aux, config=claimed.config, limits=limits)


def judgeable(index: int, items: Sequence[Item], late_s: float | None = None) -> Iterator[Row | Regime | Arrival]:
    """Rows numbered on from ``index``, the changes of regime between them, and where they begin and end to be later than a given ``late_s``."""
    for item in items:
        if item.values is not None:
            yield Row(index, item.step or 0, item.values)
            index += 1
        elif item.kind == "regime":
            yield Regime()
        elif item.kind in (LATE, ON_TIME) and late_s is not None:
            by = item.detail.get("seconds")
            yield Arrival(item.kind == LATE and isinstance(by, int | float) and by > late_s)


def _rhythm(rhythm: Rhythm, items: Sequence[Item]) -> Rhythm:
    for item in items:
        if item.values is not None:
            rhythm = presence.stepped(rhythm, item.step or 0, item.at.timestamp())
        else:
            rhythm = presence.announced(rhythm, item.kind or "", item.detail, item.at.timestamp())
    return rhythm


def _facts(claimed: Claim, moved: Transition) -> Facts:
    return Facts(claimed.project, claimed.uid, claimed.name, moved.detector, moved.organ, moved.to_state, claimed.tags)
