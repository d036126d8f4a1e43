"""From bytes to messages, whole or in part."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.api.parse import NotJson, TooLarge, read_batch, read_body
from monitor.store.checks import BadField
from monitor.wire import MAX_BODY_BYTES, Batch, Row, to_json

_rows = st.lists(
    st.builds(
        Row,
        step=st.integers(0, 2**53),
        at=st.floats(0, 2e9),
        values=st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=9), st.none() | st.floats()),
    ),
    max_size=5,
)


@given(_rows)
def test_what_a_client_writes_is_read_and_apart_reads_the_same(rows: list[Row]) -> None:
    body = to_json(Batch(attempt="a", seq=1, rows=rows))
    whole = read_batch(body)
    spoilt = json.loads(body)
    spoilt["events"] = [{"at": "never"}]
    apart = read_batch(json.dumps(spoilt).encode())
    assert not whole.refused
    assert whole.batch.rows == apart.batch.rows
    assert [(one.kind, one.index, one.field) for one in apart.refused] == [("event", 0, "kind")] or apart.refused[0].field == "at"


_anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(["attempt", "seq", "rows", "rollouts", "events", "dropped", "x"]), _anything))
def test_no_json_object_does_more_than_be_refused(tree: dict[str, Any]) -> None:
    try:
        parsed = read_batch(json.dumps(tree).encode())
    except BadField as error:
        assert error.field
        assert error.reason
    else:
        assert isinstance(parsed.batch.attempt, str)


@given(st.lists(st.sampled_from(["step", "at", "values", "hists"]).flatmap(lambda key: st.tuples(st.just(key), _anything)), max_size=4))
def test_no_row_does_more_than_be_refused(fields: list[tuple[str, Any]]) -> None:
    good = {"step": 1, "at": 1.0, "values": {"a": 1}}
    parsed = read_batch(json.dumps({"attempt": "a", "seq": 1, "rows": [good, good | dict(fields)]}).encode())
    assert len(parsed.batch.rows) + len(parsed.refused) == 2
    assert all(refusal.index == 1 for refusal in parsed.refused)


@given(st.binary(max_size=200))
def test_no_bytes_do_more_than_be_refused(body: bytes) -> None:
    try:
        read_batch(body)
    except (NotJson, BadField) as error:
        assert "\n" not in str(error)


def test_a_body_over_the_limit_is_read_on_but_not_held() -> None:
    taken = 0

    async def chunks(count: int) -> AsyncIterator[bytes]:
        nonlocal taken
        for _ in range(count):
            taken += 1
            yield b" " * 2**20

    limit = MAX_BODY_BYTES // 2**20
    assert len(asyncio.run(read_body(chunks(limit)))) == MAX_BODY_BYTES
    taken = 0
    with pytest.raises(TooLarge, match="8 MiB"):
        asyncio.run(read_body(chunks(limit + 2)))
    assert taken == limit + 2
    taken = 0
    with pytest.raises(TooLarge):
        asyncio.run(read_body(chunks(10_000)))
    assert taken < 100
