"""What healthy runs of the same kind make normal: of those alone, and as all their rows tell it."""

from __future__ import annotations

import math
import random

import pytest
from runs import Feed
from sqlalchemy.ext.asyncio import AsyncEngine

from monitor.alerts.bands import WARM_UP
from monitor.store import control, normal, queries


async def a_run(engine: AsyncEngine, uid: str, level: float, *, rows: int = 300, outcome: str | None = "healthy", **start: object) -> list[float]:
    dice = random.Random(uid)
    told = [level + dice.gauss(0, 0.01) for _ in range(rows)]
    feed = await Feed(engine, uid, algorithm="grpo", **start).start()
    await feed.rows([{"entropy.mean": value, "opt.loss": 1.0, **({"kl_ref.k3": math.nan} if i % 7 else {})} for i, value in enumerate(told)])
    async with engine.begin() as conn:
        await control.set_outcome(conn, uid, outcome)
    return told


async def bands(engine: AsyncEngine, uid: str) -> dict[str, tuple[float, float, int]]:
    async with engine.connect() as conn:
        run = await queries.find_run(conn, uid)
        assert run is not None
        return {band.metric: (band.low, band.high, band.runs) for band in await normal.bands(conn, run)}


async def test_bands_are_those_of_healthy_runs_of_the_same_kind(engine: AsyncEngine) -> None:
    first, second = await a_run(engine, "one", 0.5), await a_run(engine, "two", 0.6, rows=100)
    await a_run(engine, "failed", 9.0, outcome="collapse")
    await a_run(engine, "unsaid", 9.0, outcome=None)
    await a_run(engine, "elsewhere", 9.0, project="other")
    await a_run(engine, "larger", 9.0, config={"model": "7b"})
    assert await bands(engine, "elsewhere") == {}
    found = await bands(engine, "unsaid")
    assert set(found) == {"entropy.mean"}, "what is never finite has no band, and what has no usual level none either"
    low, high, runs = found["entropy.mean"]
    kept = sorted(first[WARM_UP:] + second[WARM_UP:])
    assert runs == 2 and low == pytest.approx(kept[len(kept) // 100], abs=0.01) and high == pytest.approx(kept[-len(kept) // 100], abs=0.01)
    assert (await bands(engine, "one"))["entropy.mean"][0] > 0.55, "a run is not compared with itself"


async def test_a_long_run_is_sampled_over_its_whole_length(engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(normal, "SAMPLES", 10)
    feed = await Feed(engine, "ramp", algorithm="grpo").start()
    await feed.rows([{"entropy.mean": float(step)} for step in range(500)])
    await a_run(engine, "other", 0.5, outcome=None)
    async with engine.begin() as conn:
        await control.set_outcome(conn, "ramp", "healthy")
    low, high, _ = (await bands(engine, "other"))["entropy.mean"]
    assert WARM_UP <= low < 60 and 450 < high < 500
