"""Back-tests over HTTP: told run by run, one at a time, and over when nobody listens."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

import httpx
from runs import Feed, broken, good, until
from serving import serving
from sqlalchemy.ext.asyncio import AsyncEngine

TRIED = "[detectors.no_signal]\nfloor = 0.01\n"


def children() -> list[str]:
    """Back-tests that this process has begun and that are not over."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int(place.joinpath("stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and b"backtest" in place.joinpath("cmdline").read_bytes():
                found.append(place.name)
    return found


async def test_runs_come_as_they_are_judged_then_the_sums(engine: AsyncEngine, database_url: str) -> None:
    for uid in ("one", "two"):
        feed = await Feed(engine, uid, project=uid).start()
        await feed.rows(good(5) + broken(2))
    well = await Feed(engine, "three", project="two").start()
    await well.rows([{"reward.task.mean": 0.3, "adv.nonzero_frac": signal, "opt.loss": 0.1} for signal in [0.6] * 12 + [0.05] * 14])
    with serving(database_url) as url:
        async with httpx.AsyncClient(timeout=60) as client:
            answer = await client.post(f"{url}/api/v1/backtest", json={"rules": TRIED})
            head, *runs, sums = map(json.loads, answer.text.splitlines())
            assert head == {"runs": 3} and [run["run"] for run in runs] == ["one", "two", "three"]
            assert [bool(run["lost"]) for run in runs] == [False, False, True]
            assert sums["today"]["incidents"] == sums["tried"]["incidents"] + 1 == 3
            answer = await client.post(f"{url}/api/v1/backtest", json={"rules": "", "project": "nobody"})
            assert answer.text == '{"runs":0}\n'
            answer = await client.post(f"{url}/api/v1/backtest", json={"rules": "", "project": "two", "since": 1.0})
            assert [json.loads(line).get("run") for line in answer.text.splitlines()] == [None, "two", "three", None]
            answer = await client.post(f"{url}/api/v1/backtest", json={"rules": "[detectors.nothing]\nx = 1\n"})
            assert (answer.status_code, answer.json()["field"]) == (422, "rules") and "line 1" in answer.json()["error"]


async def test_it_is_one_at_a_time_and_ends_when_nobody_listens(engine: AsyncEngine, database_url: str) -> None:
    for number in range(6):
        feed = await Feed(engine, f"r{number}").start()
        await feed.rows(good(400))
    with serving(database_url) as url:
        async with httpx.AsyncClient(timeout=60) as client:
            async with client.stream("POST", f"{url}/api/v1/backtest", json={"rules": TRIED}) as answer:
                lines = answer.aiter_lines()
                assert json.loads(await anext(lines)) == {"runs": 6}
                await until(lambda: bool(children()))
                second = await client.post(f"{url}/api/v1/backtest", json={"rules": TRIED})
                assert second.status_code == 429 and "running" in second.json()["error"]
            await until(lambda: not children())
            again = await client.post(f"{url}/api/v1/backtest", json={"rules": TRIED, "project": "nobody"})
            assert again.status_code == 200
