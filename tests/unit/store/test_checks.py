"""The pure checks in front of the tables."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.store import checks
from monitor.store.checks import BadField, check_key, check_start, clean, first_difference, metric_set, shorten, storable
from monitor.wire import RunStart

START = RunStart(run="r", attempt="a", project="p", name="first", started_at=1.7e9)
_DEEP: Any = functools.reduce(lambda tree, _: [tree], range(80), [])


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": ""}, "name"),
        ({"project": "x" * 300}, "project"),
        ({"algorithm": ""}, "algorithm"),
        ({"signal": "vibes"}, "signal"),
        ({"accepts": ["explode"]}, "accepts"),
        ({"task_reward": "x\n"}, "task_reward"),
        ({"aux_rewards": ["ok", ""]}, "aux_rewards"),
        ({"tags": ["t"] * 1001}, "tags"),
        ({"config": {"deep": _DEEP}}, "config"),
        ({"environment": {"deep": _DEEP}}, "environment"),
    ],
)
def test_a_wrong_start_names_its_field(change: dict[str, Any], field: str) -> None:
    with pytest.raises(BadField) as caught:
        check_start(replace(START, **change))
    assert caught.value.field.split(".")[0] == field


@pytest.mark.parametrize("key", ["", ".", "..", "a/b", "a\0", "x" * 201, "a\nb"])
def test_keys_that_cannot_be_in_an_address(key: str) -> None:
    with pytest.raises(BadField, match="printable characters without '/'"):
        check_key("run", key)


@given(st.permutations(["a", "b", "c.d", "é"]))
def test_a_metric_set_has_no_order(names: list[str]) -> None:
    assert metric_set(tuple(names)) == metric_set(("a", "b", "c.d", "é"))


_awkward_text = st.text(alphabet=st.one_of(st.characters(), st.sampled_from("\0\ud800\udfff")))
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _awkward_text, lambda inner: st.lists(inner) | st.dictionaries(_awkward_text, inner)
)


@given(_json)
def test_what_is_storable_is_utf8_without_nul_and_finite(tree: Any) -> None:
    def walk(node: Any) -> None:
        if isinstance(node, str):
            assert "\0" not in node
            node.encode()
        elif isinstance(node, float):
            assert math.isfinite(node)
        elif isinstance(node, dict):
            for key, value in node.items():
                walk(key)
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(storable("config", tree))


@given(_awkward_text)
def test_cleaning_twice_is_cleaning_once(text: str) -> None:
    assert clean(clean(text)) == clean(text)


@given(st.lists(st.text(max_size=200), max_size=12), st.integers(0, 600))
def test_shortened_texts_fit_and_what_is_gone_is_counted(texts: list[str], limit: int) -> None:
    kept, gone = shorten(texts, limit)
    assert sum(len(text.encode()) for text in kept) <= limit
    assert gone == sum(map(len, texts)) - sum(map(len, kept))
    if sum(len(text.encode()) for text in texts) <= limit:
        assert kept == texts


@given(st.lists(st.none() | st.floats()))
def test_equal_rows_do_not_differ(values: list[float | None]) -> None:
    assert first_difference(values, list(values)) is None
    assert first_difference([*values, 1.0], [*values, 2.0]) == len(values)
    assert first_difference([*values, None], [*values, math.nan]) == len(values)


@pytest.mark.parametrize("seconds", [-1.0, math.nan, math.inf, 1.7e12])
def test_times_that_are_no_unix_seconds(seconds: float) -> None:
    with pytest.raises(BadField, match="seconds"):
        checks.check_time("at", seconds)
