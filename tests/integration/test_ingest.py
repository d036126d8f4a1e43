"""What the store does with what runs send: nothing twice, nothing lost, nothing out of sequence."""

from __future__ import annotations

import asyncio
import math
import random
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncEngine

from monitor.metrics import HISTOGRAM_BY_NAME
from monitor.store import ingest
from monitor.store.tables import evaluation, event, hist, metric_set, point, rollout, run, segment
from monitor.wire import Ack, Batch, Event, Rollout, Row, RunEnd, RunStart, Turn

START = RunStart(run="r", attempt="a", project="p", name="first", started_at=1_700_000_000.0)
BINS = HISTOGRAM_BY_NAME["adv.hist"].bins


def row(step: int, at: float | None = None, hists: dict[str, list[int]] | None = None, **values: Any) -> Row:
    return Row(step=step, at=1_700_000_000.0 + step if at is None else at, values=values, hists=hists or {})


def batch(*rows: Row, attempt: str = "a", seq: int = 1, **rest: Any) -> Batch:
    return Batch(attempt=attempt, seq=seq, rows=list(rows), **rest)


async def send(engine: AsyncEngine, one: Batch, uid: str = "r") -> Ack:
    async with engine.begin() as connection:
        return await ingest.accept(connection, uid, one)


async def begin(engine: AsyncEngine, start: RunStart = START) -> int:
    async with engine.begin() as connection:
        return (await ingest.start_run(connection, start)).segment


async def fetch(engine: AsyncEngine, query: Any) -> list[Any]:
    async with engine.connect() as connection:
        return list(await connection.execute(query))


async def the_run(engine: AsyncEngine) -> Any:
    return (await fetch(engine, select(run)))[0]


async def test_a_start_is_idempotent_and_each_attempt_is_a_segment(engine: AsyncEngine) -> None:
    assert [await begin(engine), await begin(engine)] == [0, 0]
    resumed = replace(START, attempt="b", config={"lr": 1e-5}, tags=["again"])
    assert [await begin(engine, resumed), await begin(engine, resumed), await begin(engine)] == [1, 1, 0]
    assert [one.attempt for one in await fetch(engine, select(segment).order_by(segment.c.segment))] == ["a", "b"]
    assert (await the_run(engine)).config == {"lr": 1e-5}
    assert len(await fetch(engine, select(evaluation))) == 1


async def test_starts_at_once_agree(engine: AsyncEngine) -> None:
    segments = await asyncio.gather(*(begin(engine, replace(START, attempt=f"a{i % 3}")) for i in range(12)))
    assert sorted(set(segments)) == [0, 1, 2]
    assert all(segments[i] == segments[i % 3] for i in range(12))


async def test_a_batch_sent_twice_is_stored_once(engine: AsyncEngine) -> None:
    await begin(engine)
    counts = {"adv.hist": [1] * BINS}
    sample = Rollout(step=1, ordinal=0, pick="best", turns=[Turn("agent", "hello")], rewards={"task": 1.0}, advantage="NaN")
    one = batch(row(1, loss="NaN", kl=0.1, hists=counts), row(2, kl=0.2), rollouts=[sample], events=[Event(at=1.7e9, kind="note", detail={"x": 1.5})])
    assert await send(engine, one) == Ack(accepted=4, duplicate=0)
    assert await send(engine, one) == Ack(accepted=0, duplicate=4)
    assert [len(await fetch(engine, select(table))) for table in (point, hist, rollout, event, metric_set)] == [2, 1, 1, 1, 2]
    assert (await the_run(engine)).next_seq == 4


async def test_repeats_inside_one_batch(engine: AsyncEngine) -> None:
    await begin(engine)
    note = Event(at=1.7e9, kind="note")
    sample = Rollout(step=1, ordinal=0, pick="best", turns=[Turn("agent", "x")])
    other = replace(sample, turns=[Turn("agent", "y")])
    ack = await send(engine, batch(row(1, a=1), row(1, a=1), row(1, a=2), events=[note, note], rollouts=[sample, sample, other]))
    assert (ack.accepted, ack.duplicate) == (3, 3)
    assert [(one.kind, one.index, one.field) for one in ack.refused] == [("row", 2, "values.a"), ("rollout", 2, "ordinal")]


async def test_the_first_value_of_a_key_is_kept(engine: AsyncEngine) -> None:
    await begin(engine)
    await send(engine, batch(row(7, a=1.0, b="NaN", hists={"adv.hist": [1] * BINS})))
    ack = await send(engine, batch(row(7, a=2.0, b="NaN"), row(7, a=1.0, b=3.0), row(7, a=1, b="NaN", hists={"adv.hist": [2] * BINS}), row(8, a=5)))
    assert (ack.accepted, ack.duplicate) == (1, 1)
    assert [(one.index, one.field) for one in ack.refused] == [(0, "values.a"), (1, "values.b"), (2, "hists.adv.hist")]
    assert "1.0" in ack.refused[0].reason
    stored = (await fetch(engine, select(point.c.vals).order_by(point.c.step)))[0].vals
    assert stored[0] == 1.0
    assert math.isnan(stored[1])


async def test_metric_sets_do_not_depend_on_order(engine: AsyncEngine) -> None:
    await begin(engine)
    await send(engine, batch(row(1, a=1, b=2)))
    assert (await send(engine, batch(row(1, b=2, a=1)))).duplicate == 1
    assert [one.names for one in await fetch(engine, select(metric_set))] == [["a", "b"]]


async def test_two_posters_share_a_step(engine: AsyncEngine) -> None:
    await begin(engine)
    assert (await send(engine, batch(row(1, a=1), row(1, b=2)))).accepted == 2


async def test_non_finite_values_are_kept(engine: AsyncEngine) -> None:
    await begin(engine)
    spelled = ["NaN", "Infinity", "-Infinity", "nan", "-inf"]
    await send(engine, batch(*(row(step, a=one, b=None, c=1e308) for step, one in enumerate(spelled))))
    stored = [one.vals for one in await fetch(engine, select(point.c.vals).order_by(point.c.step))]
    assert [repr(vals[0]) for vals in stored] == [repr(float(one)) for one in spelled]
    assert all(vals[1:] == [None, 1e308] for vals in stored)


async def test_rows_may_come_in_any_order(engine: AsyncEngine) -> None:
    await begin(engine)
    await send(engine, batch(row(9, a=9)))
    await send(engine, batch(row(3, a=3), row(5, a=5)))
    assert [one.step for one in await fetch(engine, select(point.c.step).order_by(point.c.seq))] == [9, 3, 5]
    found = await the_run(engine)
    assert (found.last_step, found.next_seq) == (9, 4)
    assert [one.first_step for one in await fetch(engine, select(segment))] == [3]


async def test_a_resume_may_go_back_and_keeps_the_old_steps(engine: AsyncEngine) -> None:
    await begin(engine)
    await send(engine, batch(*(row(step, a=1) for step in range(10))))
    await begin(engine, replace(START, attempt="b"))
    await send(engine, batch(row(5, a=2), attempt="b"))
    assert (await the_run(engine)).last_step == 5
    assert [tuple(one) for one in await fetch(engine, select(point.c.segment, point.c.vals).where(point.c.step == 5))] == [(0, [1.0]), (1, [2.0])]
    # What the old attempt still sends is kept and does not move the run.
    await send(engine, batch(row(10, a=1)))
    assert (await the_run(engine)).last_step == 5


async def test_events_come_before_what_they_change(engine: AsyncEngine) -> None:
    await begin(engine)
    await send(engine, batch(row(1, at=10, a=1), row(2, at=20, a=1), events=[Event(at=30, kind="c"), Event(at=20, kind="b"), Event(at=5, kind="a")]))
    union = select(point.c.seq, text("'row'")).union(select(event.c.seq, event.c.kind)).order_by("seq")
    assert [tuple(one) for one in await fetch(engine, union)] == [(1, "a"), (2, "row"), (3, "b"), (4, "row"), (5, "c")]


async def test_bad_items_are_refused_by_name_and_the_rest_is_kept(engine: AsyncEngine) -> None:
    await begin(engine)
    ack = await send(
        engine,
        batch(
            row(1, good=1),
            row(-1, a=1),
            row(2**53 + 1, a=1),
            row(2, loss="abc"),
            row(3, **{"x" * 10_000: 1}),
            row(4, **{"": 1}),
            row(5, **{"a\nb": 1}),
            row(6),
            row(7, at=1.7e12, a=1),
            row(8, at=math.nan, a=1),
            row(9, hists={"adv.hist": [1, 2]}),
            row(10, hists={"no.such.hist": [1, 2]}),
            row(11, hists={"adv.hist": [-1] * BINS}),
            row(12, a=10**400),
            row(13, also_good=2),
            events=[Event(at=1, kind=""), Event(at=-1, kind="x"), Event(at=1, kind="x", step=-5)],
            rollouts=[
                Rollout(step=1, ordinal=-1, pick="best", turns=[Turn("agent", "x")]),
                Rollout(step=1, ordinal=1, pick="best", turns=[Turn("boss", "x")]),
                Rollout(step=1, ordinal=2, pick="best", turns=[]),
                Rollout(step=1, ordinal=3, pick="best", turns=[Turn("agent", "x")], rewards={"r": "abc"}),
            ],
            dropped={"rows": -1},
        ),
    )
    assert ack.accepted == 2
    named = [(one.kind, one.index, one.field) for one in ack.refused]
    assert named == [
        ("row", 1, "step"),
        ("row", 2, "step"),
        ("row", 3, "values.loss"),
        ("row", 4, f"values.{'x' * 40}"),
        ("row", 5, "values"),
        ("row", 6, "values.a\\nb"),
        ("row", 7, "values"),
        ("row", 8, "at"),
        ("row", 9, "at"),
        ("row", 10, "hists.adv.hist"),
        ("row", 11, "hists.no.such.hist"),
        ("row", 12, "hists.adv.hist"),
        ("row", 13, "values.a"),
        ("rollout", 0, "ordinal"),
        ("rollout", 1, "turns[0].role"),
        ("rollout", 2, "turns"),
        ("rollout", 3, "rewards.r"),
        ("event", 0, "kind"),
        ("event", 1, "at"),
        ("event", 2, "step"),
        ("batch", 0, "dropped.rows"),
    ]
    assert [one.seq for one in await fetch(engine, select(point.c.seq).order_by(point.c.seq))] == [1, 2]


async def test_text_that_postgres_cannot_hold(engine: AsyncEngine) -> None:
    awkward = "a\0b\ud800c"
    await begin(engine, replace(START, name=awkward, config={awkward: [awkward, math.nan, -math.inf]}, tags=[awkward]))
    sample = Rollout(step=1, ordinal=0, pick=awkward, turns=[Turn("agent", awkward)], rewards={"x": math.inf}, advantage=math.inf)
    ack = await send(engine, batch(rollouts=[sample], events=[Event(at=1, kind=awkward, detail={awkward: math.nan})]))
    assert ack == Ack(accepted=2, duplicate=0)
    found = await the_run(engine)
    assert found.name == "a\ufffdb?c"
    assert found.config == {"a\ufffdb?c": ["a\ufffdb?c", "NaN", "-Infinity"]}
    stored = (await fetch(engine, select(rollout)))[0]
    assert (stored.turns, stored.rewards, stored.advantage) == ([{"role": "agent", "text": "a\ufffdb?c"}], {"x": "Infinity"}, math.inf)


async def test_long_rollouts_lose_their_middle_and_say_how_much(engine: AsyncEngine) -> None:
    await begin(engine)
    turns = [Turn("prompt", "short"), Turn("agent", "ä" * 60_000 + "END"), Turn("observation", "o" * 20_000)]
    await send(engine, batch(rollouts=[Rollout(step=1, ordinal=0, pick="best", turns=turns)]))
    stored = (await fetch(engine, select(rollout)))[0]
    texts = [turn["text"] for turn in stored.turns]
    assert texts[0] == "short"
    assert texts[1].endswith("END")
    assert texts[2] == "o" * 20_000
    assert sum(len(one.encode()) for one in texts) <= 64 * 2**10
    assert stored.shortened == sum(len(turn.text) for turn in turns) - sum(map(len, texts)) > 0


async def test_what_clients_shed_adds_up_over_attempts(engine: AsyncEngine) -> None:
    await begin(engine)
    await send(engine, batch(seq=2, dropped={"rows": 5}))
    await send(engine, batch(seq=1, dropped={"rows": 3}))
    await begin(engine, replace(START, attempt="b"))
    await send(engine, batch(attempt="b", dropped={"rows": 2, "rollouts": 1}))
    await send(engine, batch(attempt="b", dropped={"rows": 2, "rollouts": 1}))
    assert (await the_run(engine)).dropped == {"rows": 7, "rollouts": 1}


async def finish(engine: AsyncEngine, attempt: str, state: str = "finished") -> str:
    async with engine.begin() as connection:
        return await ingest.finish(connection, "r", RunEnd(attempt=attempt, state=state, at=1_700_001_000.0, reason="done\0"))


async def test_a_run_ends_and_new_data_reopens_it(engine: AsyncEngine) -> None:
    await begin(engine)
    await send(engine, batch(row(1, a=1)))
    assert [await finish(engine, "a"), await finish(engine, "a")] == ["finished", "finished"]
    ended = await the_run(engine)
    assert (ended.state, ended.end_reason) == ("finished", "done\ufffd")
    await send(engine, batch(row(1, a=1)))
    assert (await the_run(engine)).state == "finished"
    await send(engine, batch(row(2, a=1)))
    reopened = await the_run(engine)
    assert (reopened.state, reopened.end_reason, reopened.finished_at) == ("running", None, None)


async def test_an_old_attempt_cannot_end_the_new_one(engine: AsyncEngine) -> None:
    await begin(engine)
    await begin(engine, replace(START, attempt="b"))
    assert await finish(engine, "a", "crashed") == "running"
    assert await finish(engine, "b") == "finished"


async def test_the_unknown_is_told_to_start_again(engine: AsyncEngine) -> None:
    with pytest.raises(ingest.UnknownRun, match="post its start") as caught:
        await send(engine, batch(row(1, a=1)), uid="nobody")
    assert caught.value.field == "run"
    await begin(engine)
    with pytest.raises(ingest.UnknownRun, match="post its start") as caught:
        await send(engine, batch(row(1, a=1), attempt="zzz"))
    assert caught.value.field == "attempt"


async def test_sequences_have_no_gap_under_concurrent_posters(engine: AsyncEngine) -> None:
    await begin(engine)
    steps = list(range(60))
    jobs = [batch(*(row(step, a=step) for step in steps[i : i + 5])) for i in range(0, 60, 5)] * 2
    random.Random(7).shuffle(jobs)
    acks = await asyncio.gather(*(send(engine, job) for job in jobs))
    assert (sum(ack.accepted for ack in acks), sum(ack.duplicate for ack in acks)) == (60, 60)
    assert [one.seq for one in await fetch(engine, select(point.c.seq).order_by(point.c.seq))] == list(range(1, 61))
    assert (await the_run(engine)).next_seq == 61


async def test_a_rolled_back_batch_leaves_no_gap(engine: AsyncEngine) -> None:
    await begin(engine)
    with pytest.raises(RuntimeError):
        async with engine.begin() as connection:
            await ingest.accept(connection, "r", batch(row(1, a=1)))
            raise RuntimeError
    assert (await send(engine, batch(row(2, a=1)))).accepted == 1
    assert [tuple(one) for one in await fetch(engine, select(point.c.seq, point.c.step))] == [(1, 2)]


async def test_a_batch_changes_the_run_without_touching_an_index(engine: AsyncEngine) -> None:
    """Each batch updates the run's row; an index on a column that it changes would grow with every one."""
    await begin(engine)
    for step in range(20):
        await send(engine, batch(row(step, a=step)))
    statistics = text(
        "SELECT pg_stat_force_next_flush(), n_tup_upd AS updates, n_tup_hot_upd AS in_place FROM pg_stat_user_tables WHERE relname = 'run'"
    )
    async with asyncio.timeout(20):
        while True:
            (found,) = await fetch(engine, statistics)
            if found.updates >= 20:
                break
            await asyncio.sleep(0.05)
    assert found.in_place >= 0.9 * found.updates
