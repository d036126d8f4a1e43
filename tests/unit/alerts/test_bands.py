"""Bands of healthy runs: bounded, order-keeping, and grouped by what may be compared."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.alerts.bands import MOST, WARM_UP, Bands, Group, Thinned, model_of
from monitor.detect.contract import Row

GROUP = Group("math", "grpo", "small")


def rows(values: list[float], start: int = 0) -> list[Row]:
    return [Row(start + i, start + i, {"entropy.mean": value}) for i, value in enumerate(values)]


def test_a_long_stream_is_thinned_evenly_and_its_quantiles_hold() -> None:
    sample = Thinned()
    for i in range(100_000):
        sample.add(float(i))
    assert MOST // 2 <= len(sample.values) <= MOST
    assert sample.count == 100_000
    for share in (0.01, 0.5, 0.99):
        assert sample.quantile(share) == pytest.approx(share * 99_999, abs=100)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50))
def test_quantiles_lie_in_order_within_the_values(values: list[float]) -> None:
    sample = Thinned()
    for value in values:
        sample.add(value)
    low, median, high = (sample.quantile(share) for share in (0.01, 0.5, 0.99))
    assert min(values) <= low <= median <= high <= max(values) or math.isclose(low, high)


def test_warm_up_and_values_that_are_no_numbers_are_left_out() -> None:
    bands = Bands()
    bands.add(GROUP, "one", rows([100.0] * WARM_UP + [0.5] * 10 + [math.nan, math.inf]))
    bands.add(GROUP, "two", rows([0.7] * 10, start=WARM_UP))
    (band,) = bands.found()
    assert (band.low, band.high, band.rows, band.runs) == (0.5, 0.7, 20, 2)


def test_groups_are_kept_apart() -> None:
    bands = Bands()
    bands.add(GROUP, "one", rows([0.5], WARM_UP))
    bands.add(Group("math", "gspo", "small"), "two", rows([0.9], WARM_UP))
    assert [(band.group.algorithm, band.median) for band in bands.found()] == [("grpo", 0.5), ("gspo", 0.9)]


@pytest.mark.parametrize(
    ("config", "model"),
    [
        ({"model": "small"}, "small"),
        ({"trainer": {"model_name_or_path": "org/small"}}, "org/small"),
        ({"actor_rollout_ref": {"model": {"path": "big"}}}, "big"),
        ({"model": {"layers": 2}}, ""),
        ({}, ""),
    ],
)
def test_the_model_is_found_where_configurations_put_it(config: dict[str, object], model: str) -> None:
    assert model_of(config) == model
