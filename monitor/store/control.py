"""What people tell a run: another name for it, and requests that it obeys when it next sends."""

from __future__ import annotations

from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from monitor.store.checks import BadField, check_text
from monitor.store.ingest import UnknownRun
from monitor.store.tables import request, run
from monitor.wire import OUTCOMES, REQUESTS


async def make_request(connection: AsyncConnection, run_uid: str, kind: str, *, dry_run: bool = False) -> list[str]:
    """Asks a running run for ``kind`` and returns its open requests. Asking twice is asking once; with ``dry_run`` only whether it could be asked
    is found out. Raises UnknownRun and BadField."""
    if kind not in REQUESTS:
        raise BadField("kind", f"must be one of {', '.join(REQUESTS)}")
    query = select(run.c.id, run.c.state, run.c.accepts).where(run.c.uid == run_uid).with_for_update(key_share=True)
    found = (await connection.execute(query)).one_or_none()
    if found is None:
        raise UnknownRun("run", f"There is no run {run_uid[:80]!r}.")
    if found.state != "running":
        raise BadField("run", f"is {found.state}, only a running run can be asked for something")
    if kind not in found.accepts:
        accepts = f"accepts only {', '.join(found.accepts)}" if found.accepts else "accepts no request"
        raise BadField("kind", f"the run {accepts}; it says so itself when it starts (accepts=[...])")
    open_ones = list(await connection.scalars(select(request.c.kind).where(request.c.run_id == found.id, request.c.done_at.is_(None))))
    if kind not in open_ones and not dry_run:
        await connection.execute(insert(request).values(run_id=found.id, kind=kind))
        open_ones.append(kind)
    return open_ones


async def set_label(connection: AsyncConnection, run_uid: str, label: str | None) -> None:
    """Gives a run a name to be shown instead of its own; None wipes it off. Raises UnknownRun and BadField."""
    text = None if label is None else check_text("label", label)
    found = await connection.scalars(update(run).where(run.c.uid == run_uid).values(label=text).returning(run.c.id))
    if found.one_or_none() is None:
        raise UnknownRun("run", f"There is no run {run_uid[:80]!r}.")


async def set_outcome(connection: AsyncConnection, run_uid: str, outcome: str | None) -> None:
    """Says what a run came to, one of ``monitor.wire.OUTCOMES``; None takes it back. Raises UnknownRun and BadField."""
    if outcome is not None and outcome not in OUTCOMES:
        raise BadField("outcome", f"must be one of {', '.join(OUTCOMES)}")
    found = await connection.scalars(update(run).where(run.c.uid == run_uid).values(outcome=outcome).returning(run.c.id))
    if found.one_or_none() is None:
        raise UnknownRun("run", f"There is no run {run_uid[:80]!r}.")
