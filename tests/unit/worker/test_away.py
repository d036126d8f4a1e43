"""A database that goes and comes back is told once each, however many loops find out, and in whatever order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from monitor.store.database import DatabaseUnreachable, create_engine
from monitor.worker import Worker

Step = Callable[[], Awaitable[None]]


async def test_what_was_begun_before_the_database_went_or_came_says_nothing_of_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "vitals.worker")
    worker, stop, begun, gone = (
        Worker(create_engine("postgresql://nobody@127.0.0.1:1/nothing"), []),
        asyncio.Event(),
        asyncio.Event(),
        asyncio.Event(),
    )

    def told() -> list[str]:
        return [record.message for record in caplog.records]

    async def until(count: int) -> None:
        while len(told()) < count:  # noqa: ASYNC110 (a log cannot be waited for)
            await asyncio.sleep(0.01)

    def loop(*steps: Step) -> Awaitable[None]:
        left = list(steps)

        async def work() -> bool:
            await (left.pop(0)() if left else stop.wait())
            return True

        return worker._forever(work, stop)

    async def fails() -> None:
        await begun.wait()
        raise DatabaseUnreachable("It is away.")

    async def begins_before_it_goes_and_succeeds() -> None:
        begun.set()
        await until(1)

    async def begins_before_it_is_back_and_fails() -> None:
        gone.set()
        await until(2)
        raise DatabaseUnreachable("It was away.")

    async def ends() -> None:
        stop.set()

    async with asyncio.timeout(30):
        await asyncio.gather(loop(fails, gone.wait), loop(begins_before_it_goes_and_succeeds, begins_before_it_is_back_and_fails, ends))  # type: ignore[arg-type]
    assert told() == ["It is away. Waiting for it.", "the database is back"]
