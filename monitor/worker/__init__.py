"""The worker: judges what has arrived and sends what is due.

Judging is one transaction per run: claim, load, fold, write transitions with their deliveries and the cursor, commit. Sending happens outside
any transaction. Any number of workers run side by side; each may die at any moment.
"""

from __future__ import annotations

import asyncio
import signal

from monitor.settings import Settings, channels, rules
from monitor.store import deliveries, embedded
from monitor.store.database import create_engine, require_current, transaction
from monitor.worker.loop import Worker
from monitor.worker.pace import Pace
from monitor.worker.sending import compose

__all__ = ["Pace", "Worker", "compose", "run"]


async def run(settings: Settings, *, pace: Pace = Pace()) -> None:
    """Works until SIGTERM or SIGINT. Raises SettingsError for a wrong setting and DatabaseError for an unusable database."""
    url = embedded.cluster(settings.data_dir).url if settings.database_url is None else settings.database_url.get_secret_value()
    ruled = rules(settings)
    carriers = channels(settings, ruled)
    engine = create_engine(url, pool_size=len(carriers) + 4, application="rlvitals worker")
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        await require_current(engine)
        async with transaction(engine) as conn:
            await deliveries.enable(conn, [channel.name for channel in carriers])
        await Worker(engine, carriers, routes=ruled.routes, link=settings.url, pace=pace, rules=ruled).run(stop)
    finally:
        await engine.dispose()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
