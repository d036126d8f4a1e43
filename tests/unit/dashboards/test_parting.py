"""Where two runs part."""

from __future__ import annotations

import math
import random

from hypothesis import given
from hypothesis import strategies as st

from dashboards.parting import parting, partings


def noisy(seed: int, n: int = 120, level: float = 0.0) -> dict[int, float]:
    dice = random.Random(seed)
    return {step: math.tanh(step / 40) + level + dice.gauss(0, 0.05) for step in range(n)}


def test_a_jump_is_found_where_it_is() -> None:
    one, other = noisy(1), noisy(2)
    for step in range(70, 120):
        other[step] -= 0.8
    found = parting("m", one, other)
    assert found is not None and 69 <= found.step <= 72 and found.size > 0.3


def test_noise_alone_does_not_part() -> None:
    assert sum(parting("m", noisy(seed), noisy(seed + 100)) is not None for seed in range(60)) <= 1


def test_a_difference_that_heals_is_none() -> None:
    one, other = noisy(1), noisy(2)
    for step in range(20, 30):
        other[step] += 2
    assert parting("m", one, other) is None


def test_equal_prefixes_and_few_points() -> None:
    same = noisy(3)
    assert parting("m", same, dict(same)) is None
    assert parting("m", {0: 1.0}, {0: 2.0}) is None
    later = {step: value + (step >= 50) for step, value in same.items()}
    assert parting("m", same, later).step == 50  # type: ignore[union-attr]


def test_the_earliest_metric_comes_first() -> None:
    one = {"a": noisy(1), "b": noisy(2), "only": noisy(3)}
    other = {"a": {s: v + (s > 80) for s, v in noisy(4).items()}, "b": {s: v + (s > 40) for s, v in noisy(5).items()}}
    assert [each.metric for each in partings(["a", "b", "only"], one, other)] == ["b", "a"]


@given(st.dictionaries(st.integers(0, 50), st.floats(-1e300, 1e300)), st.dictionaries(st.integers(0, 50), st.floats(-1e300, 1e300)))
def test_it_never_raises_and_names_a_common_step(one: dict[int, float], other: dict[int, float]) -> None:
    found = parting("m", one, other)
    assert found is None or (found.step in one and found.step in other)
