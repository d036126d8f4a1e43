"""``vitals alerts`` against a collector on a real socket."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

import pytest
from runs import Feed, broken, good
from serving import serving
from sqlalchemy.ext.asyncio import AsyncEngine

from monitor.cli import main
from monitor.cli.alerts import seconds
from monitor.cli.errors import CommandError
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


async def test_following_prints_each_change_from_now_on(engine: AsyncEngine, database_url: str) -> None:
    with serving(database_url) as url:
        feed = await Feed(engine, "r1").start()
        await feed.rows(good(3) + broken(1))
        await judge(engine)
        command = [sys.executable, "-m", "monitor.cli", "alerts", "--follow", "--json", "--url", url]
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        try:
            await asyncio.sleep(2.5)
            await feed.rows(good(10))
            await judge(engine)
            assert process.stdout is not None
            moved = json.loads(await process.stdout.readline())
            assert (moved["from_state"], moved["to_state"], moved["reason"]) == ("critical", "resolved", "quiet")
        finally:
            process.kill()
            await process.wait()


def test_spans() -> None:
    assert [seconds(span) for span in ("90s", "30m", "1.5h", "2d")] == [90, 1800, 5400, 172_800]
    for wrong in ("", "h", "-1h", "1w", "nanh", "0m"):
        with pytest.raises(CommandError, match="no length of time"):
            seconds(wrong)
