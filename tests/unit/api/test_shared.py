"""One answer for everybody who asks the same at the same time."""

from __future__ import annotations

import asyncio

import pytest

from monitor.api.shared import Shared


class Work:
    def __init__(self, error: Exception | None = None) -> None:
        self.done, self.error, self.go = 0, error, asyncio.Event()

    async def __call__(self) -> bytes:
        await self.go.wait()
        self.done += 1
        if self.error is not None:
            raise self.error
        return b"%d" % self.done


async def test_who_asks_the_same_at_the_same_time_gets_one_answer_and_who_hangs_up_takes_it_from_nobody() -> None:
    shared, work = Shared(60), Work()
    asked = [asyncio.create_task(shared.answer("q", work)) for _ in range(10)]
    other = asyncio.create_task(shared.answer("another", work))
    await asyncio.sleep(0)
    asked[0].cancel()
    work.go.set()
    assert [await task for task in asked[1:]] == [b"1"] * 9 and await other == b"2"
    assert await shared.answer("q", work) == b"1"


async def test_an_old_answer_is_made_again() -> None:
    shared, work = Shared(0.0), Work()
    work.go.set()
    assert [await shared.answer("q", work), await shared.answer("q", work)] == [b"1", b"2"]


async def test_a_failure_is_told_to_those_who_wait_and_not_kept() -> None:
    shared, work = Shared(60), Work(ValueError("no"))
    asked = [asyncio.create_task(shared.answer("q", work)) for _ in range(3)]
    await asyncio.sleep(0)
    work.go.set()
    for task in asked:
        with pytest.raises(ValueError, match="no"):
            await task
    work.error = None
    assert await shared.answer("q", work) == b"2"
