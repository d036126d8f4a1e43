"""Acting on an alarm: requests to its run that are born in the transaction of the transition, as a person's are born on a page."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from monitor.alerts.book import Transition
from monitor.store import control
from monitor.store.checks import BadField
from monitor.store.tables import event, run, segment

ACT = "act"
"""The kind of event by which a run's page tells what was asked of it, or would have been."""


async def act(conn: AsyncConnection, run_id: int, moved: Transition, wanted: Mapping[str, bool]) -> str:
    """Asks a run for what it accepts of ``wanted`` (request -> dry run), notes it among its events, and says in one sentence what was done."""
    newest = select(func.max(segment.c.segment)).where(segment.c.run_id == run.c.id).scalar_subquery()
    place = (
        await conn.execute(select(run.c.uid, run.c.next_seq, newest.label("segment")).where(run.c.id == run_id).with_for_update(key_share=True))
    ).one()
    said, happened = [], []
    for kind, dry_run in wanted.items():
        try:
            await control.make_request(conn, place.uid, kind, dry_run=dry_run)
        except BadField as error:
            why = error.reason.partition(";")[0]
            said.append(f"was not asked to {kind}: {f'it {why}' if error.field == 'run' else why}")
            continue
        said.append(f"would have been asked to {kind} (dry run)" if dry_run else f"was asked to {kind}")
        happened.append({"request": kind, "dry_run": dry_run, "detector": moved.detector, "severity": moved.to_state})
    if happened:
        where = {"run_id": run_id, "segment": place.segment, "step": moved.step, "at": func.now(), "kind": ACT}
        await conn.execute(insert(event).values([where | {"seq": place.next_seq + i, "detail": each} for i, each in enumerate(happened)]))
        await conn.execute(update(run).where(run.c.id == run_id).values(next_seq=place.next_seq + len(happened), watched=True))
    return f"The run {'; '.join(said)}."
