"""``vitals alerts`` against a collector on a real socket."""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from runs import T0, Feed, broken, good
from serving import serving
from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncEngine

from monitor import wire
from monitor.cli import main
from monitor.cli.alerts import seconds
from monitor.cli.errors import CommandError
from monitor.store.tables import blind
from monitor.worker import Worker


async def judge(engine: AsyncEngine) -> None:
    while await Worker(engine, []).evaluate():
        pass


async def vitals(capsys: Any, url: str, *arguments: str, code: int = 0) -> str:
    """What the command prints, on either stream."""
    assert await asyncio.to_thread(main, ["alerts", *arguments, "--url", url]) == code
    said = capsys.readouterr()
    return str(said.out + said.err).strip()


async def test_listing_and_acting(engine: AsyncEngine, database_url: str, capsys: Any) -> None:
    with serving(database_url) as url:
        assert await vitals(capsys, url) == "nothing is open"
        await (await Feed(engine, "r1").start()).rows(good(3) + broken(1))
        await judge(engine)
        line = await vitals(capsys, url)
        key = line[:8]
        assert line.endswith("critical  open  repair / name of r1, step 3: Gradient norm is not a finite number")
        assert "acknowledged by ada" in await vitals(capsys, url, "acknowledge", key, "--author", "ada", "-m", "on it")
        assert json.loads(await vitals(capsys, url, "mark", key, "true", "--json"))["mark"] == "true"
        assert "resolved" in await vitals(capsys, url, "resolve", key)
        assert await vitals(capsys, url) == "nothing is open" and key in await vitals(capsys, url, "--all")
        assert "silence 1 for 2h" in await vitals(capsys, url, "silence", "--project", "repair", "--for", "2h", "-m", "why")
        for arguments, says in (
            (("acknowledge", "zzz"), "no incidents begin with 'zzz'"),
            (("acknowledge",), "name the incident"),
            (("mark", key), "say true or false"),
            (("resolve", key), "is over already"),
            (("silence", "-m", "x"), "must name something"),
            (("silence", "--project", "p"), "say why"),
        ):
            assert says in await vitals(capsys, url, *arguments, code=2)
    assert "no collector answers" in await vitals(capsys, url, code=2)


async def test_announced_silence_and_our_own_blindness_are_listed(engine: AsyncEngine, database_url: str, capsys: Any) -> None:
    feed = await Feed(engine, "r1").start()
    await feed.rows(good(3), events=[wire.Event(T0 + 5, "expect", 2, {"seconds": 1200, "why": "evaluation"})])
    await judge(engine)
    async with engine.begin() as conn:
        past = datetime.now(UTC) - timedelta(hours=2)
        await conn.execute(insert(blind).values(component="collector", from_at=past - timedelta(minutes=20), to_at=past))
    with serving(database_url) as url:
        nothing, quiet, unseen = (await vitals(capsys, url)).splitlines()
        assert nothing == "nothing is open"
        assert "repair / name of r1: evaluation; silence is expected until " in quiet
        assert unseen.startswith("blind     from ") and "the collector was down" in unseen
        assert "evaluation" not in await vitals(capsys, url, "--project", "elsewhere")
        await feed.rows([], events=[wire.Event(T0 + 60, "unpause", 2)])
        await judge(engine)
        assert "evaluation" not in await vitals(capsys, url)


async def test_following_prints_each_change_from_now_on(engine: AsyncEngine, database_url: str) -> None:
    with serving(database_url) as url:
        feed = await Feed(engine, "r1").start()
        await feed.rows(good(3) + broken(1))
        await judge(engine)
        command = [sys.executable, "-m", "monitor.cli", "alerts", "--follow", "--json", "--url", url]
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        try:
            assert process.stdout is not None
            first = asyncio.create_task(process.stdout.readline())
            for rows in itertools.cycle((good(10), broken(1))):  # the command takes its time to begin
                await feed.rows(rows)
                await judge(engine)
                if (await asyncio.wait([first], timeout=2.0))[0]:
                    break
            moved = json.loads(await first)
            assert (moved["from_state"], moved["to_state"]) in (("critical", "resolved"), ("resolved", "critical"))
        finally:
            process.kill()
            await process.wait()


def test_spans() -> None:
    assert [seconds(span) for span in ("90s", "30m", "1.5h", "2d")] == [90, 1800, 5400, 172_800]
    for wrong in ("", "h", "-1h", "1w", "nanh", "0m"):
        with pytest.raises(CommandError, match="no length of time"):
            seconds(wrong)
