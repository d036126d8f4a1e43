"""``vitals backtest``: stored runs, judged again, agree with what the worker said, and differ where a threshold does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from runs import Feed, broken, good
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from monitor import wire
from monitor.alerts.rules import Rules, parse
from monitor.cli import main
from monitor.cli.backtest import replayed, summary
from monitor.cli.bands import _gather, report
from monitor.deliver.webhook import Webhook
from monitor.store import control
from monitor.store.tables import transition
from monitor.worker import Worker


def learning(n: int, signal: float) -> list[dict[str, float]]:
    return [{"reward.task.mean": 0.3, "adv.nonzero_frac": signal, "opt.loss": 0.1}] * n


LOOSE = "[detectors.no_signal]\nfloor = 0.01\n"


async def stored(engine: AsyncEngine) -> None:
    ill = await Feed(engine, "ill").start()
    await ill.rows(good(5) + broken(1) + good(12))
    await ill.rows(good(3), events=[wire.Event(1.8e9, "regime", None, {"batch_size": 8})])
    well = await Feed(engine, "well").start()
    await well.rows(learning(12, 0.6) + learning(14, 0.05))
    async with engine.begin() as conn:
        await control.set_outcome(conn, "ill", "collapse")
        await control.set_outcome(conn, "well", "healthy")


async def test_a_replay_raises_what_the_worker_raised(engine: AsyncEngine, database_url: str) -> None:
    await stored(engine)
    worker = Worker(engine, [Webhook("webhook", "http://127.0.0.1:9/never-called", private=True)])
    while await worker.evaluate():
        pass
    async with engine.connect() as conn:
        columns = transition.c.step, transition.c.to_state, transition.c.from_state
        said = [row for row in await conn.execute(select(*columns)) if row.to_state in ("warning", "critical") and row.to_state != row.from_state]
    results = [each async for each in replayed(database_url, Rules(), Rules())]
    assert sorted((fire.step, fire.severity) for result in results for fire in result.today) == sorted((row.step, row.to_state) for row in said)
    assert [(result.run, result.outcome, result.rows) for result in results] == [("ill", "collapse", 21), ("well", "healthy", 26)]


async def test_changed_thresholds_are_set_beside_the_present_ones(engine: AsyncEngine, database_url: str) -> None:
    await stored(engine)
    results = [each async for each in replayed(database_url, Rules(), parse(LOOSE))]
    ill, well = results
    assert ill.today == ill.tried and ill.today
    assert any(fire.detector == "no_signal" for fire in well.today)
    assert not any(fire.detector == "no_signal" for fire in well.tried)
    total = summary(results)
    assert (total["ill_runs"], total["healthy_runs"], total["healthy_rows"]) == (1, 1, 26)
    assert (total["today"]["caught"], total["tried"]["caught"]) == (1, 1)
    assert total["today"]["noisy"] == 1 and total["tried"]["noisy"] == 0
    assert total["tried"]["false_per_1000"] == 0.0 < total["today"]["false_per_1000"]


def test_the_command_reads_the_database_and_writes_nothing(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import asyncio

    from monitor.store import database

    async def fill() -> None:
        async with database.opened(database_url) as engine:
            await stored(engine)

    asyncio.run(fill())
    rules = tmp_path / "tried.toml"
    rules.write_text(LOOSE)
    monkeypatch.setenv("VITALS_DATABASE_URL", database_url)
    assert main(["backtest", "--rules", str(rules)]) == 0
    told = capsys.readouterr().out
    assert "repair/name of well (healthy, 26 rows)" in told
    assert "name of ill" not in told
    assert any(line.startswith("  - row") and "no_signal" in line for line in told.splitlines())
    assert main(["backtest", "--json", "--project", "repair", "--since", "2020-01-01"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line.get("run") for line in lines] == ["ill", "well", None]
    assert all(line["gained"] == line["lost"] == [] for line in lines[:2])
    assert main(["backtest", "--json", "--last", "1"]) == 0
    assert [json.loads(line).get("run") for line in capsys.readouterr().out.splitlines()] == ["well", None]
    assert main(["backtest", "--project", "nothing"]) == 0
    assert capsys.readouterr().out == "no stored run fits\n"
    assert main(["backtest", "--since", "soon"]) == 2
    assert "--since is a span" in capsys.readouterr().err


async def test_bands_come_from_runs_called_healthy(engine: AsyncEngine, database_url: str) -> None:
    for uid, level in (("one", 0.5), ("two", 0.7), ("three", 9.0)):
        feed = await Feed(engine, uid, algorithm="grpo", config={"model": "small"}).start()
        await feed.rows([{"entropy.mean": level, "opt.grad_norm": 1.0}] * 30)
    async with engine.begin() as conn:
        await control.set_outcome(conn, "one", "healthy")
        await control.set_outcome(conn, "two", "healthy")
        await control.set_outcome(conn, "three", "collapse")
    found = await _gather(database_url, None, None)
    assert [(band.metric, band.low, band.high, band.rows, band.runs) for band in found] == [
        ("entropy.mean", 0.5, 0.7, 20, 2),
        ("opt.grad_norm", 1.0, 1.0, 20, 2),
    ]
    assert "repair (grpo, small)" in "\n".join(report(found))


def test_a_stored_run_is_diagnosed_as_a_file_is(database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import asyncio

    from monitor.store import database

    async def fill() -> None:
        async with database.opened(database_url) as engine:
            await stored(engine)

    asyncio.run(fill())
    monkeypatch.setenv("VITALS_DATABASE_URL", database_url)
    assert main(["diagnose", "--stored", "ill", "--json", "--fail-on", "critical"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["source"], found["rows"], found["findings"][0]["detector"], found["findings"][0]["row"]) == (
        "repair/name of ill",
        21,
        "non_finite",
        5,
    )
    assert found["findings"][0]["resolved_row"] is not None
    assert main(["diagnose", "--stored", "nobody"]) == 2
    assert "there is no run 'nobody' in the database " in capsys.readouterr().err
    assert main(["diagnose", "nobody"]) == 2
    assert "then add --stored" in capsys.readouterr().err


def test_a_stored_run_may_be_named_as_people_do(database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import asyncio

    from monitor.store import database

    async def fill() -> None:
        async with database.opened(database_url) as engine:
            for uid, name in (("5f93-first", "grpo"), ("5f93-second", "grpo"), ("77%_a", "ppo"), ("ppo", "other")):
                await (await Feed(engine, uid, name=name).start()).rows(good(3))

    asyncio.run(fill())
    monkeypatch.setenv("VITALS_DATABASE_URL", database_url)

    def source(word: str) -> str:
        assert main(["diagnose", "--stored", word, "--json"]) == 0
        return str(json.loads(capsys.readouterr().out)["source"])

    assert source("other") == source("repair/other") == "repair/other"
    assert source("5f93-s") == "repair/grpo" and source("77%") == "repair/ppo"
    assert source("ppo") == "repair/other", "an identifier goes before a name"
    assert main(["diagnose", "--stored", "grpo"]) == 2
    told = "vitals diagnose: 2 runs are called 'grpo'; name one by its identifier, the newest last: 5f93-first, 5f93-second\n"
    assert capsys.readouterr().err == told
    assert main(["diagnose", "--stored", "%"]) == 2
    assert "there is no run '%'" in capsys.readouterr().err
