"""The numbers of the live answers."""

from __future__ import annotations

import random

from monitor.api.live import encode
from monitor.store.series import Curve

EDGES = [0.0, None, 5e-324, 1e-15, 1e15, 0.9999995, 999999.5, 123456.5, 1e-4, 1.7e308, -1.0]


def test_long_curves_are_rounded_like_short_ones() -> None:
    chance = random.Random(3)
    values = EDGES + [chance.choice((1, -1)) * chance.random() * 10.0 ** chance.randint(-300, 300) for _ in range(5000)]
    told = encode({"a": {0: Curve(list(range(len(values))), values, [], [], [])}})["a"]["0"]["y"]
    assert told == [None if value is None else float(f"{value:.6g}") for value in values]
