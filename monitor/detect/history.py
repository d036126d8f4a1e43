"""The bounded memory of a run: for each judged series its first and its latest values, as plain JSON.

Only finite values enter; a series keeps its own row indices, so that a sparse evaluation series is not stretched. Values are kept to six
significant digits, which halves the stored state and is finer than any rule resolves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WINDOW = 64
"""Latest values kept per series."""
FIRST = 24
"""Values kept from the series' start (of the current regime)."""
MAX_SERIES = 96
"""Series kept per run; later names of a run with more are not judged."""


@dataclass(frozen=True, slots=True)
class Series:
    """One series: ``x`` the latest values, oldest first, ``at`` their row indices, ``first`` the earliest values, ``n`` how many came in all."""

    name: str
    n: int
    first: Sequence[float]
    at: Sequence[int]
    x: Sequence[float]

    @property
    def last(self) -> float:
        """The latest finite value; NaN for an empty series."""
        return self.x[-1] if self.x else math.nan


def empty(name: str) -> Series:
    return Series(name, 0, (), (), ())


COMPONENTS = ("reward.fn.", "reward.aux.")
"""Beginnings of the names of single reward functions, whose means are remembered."""


def judged(name: str, watched: frozenset[str]) -> bool:
    """Whether the series called ``name`` is remembered: what some rule reads, and the mean of each reward function."""
    return name in watched or (name.startswith(COMPONENTS) and name.endswith(".mean"))


def extend(history: Mapping[str, Any], index: int, values: Mapping[str, float], watched: frozenset[str]) -> dict[str, Any]:
    """``history`` with the finite values of one row appended; the argument is left as it was."""
    grown = dict(history)
    for name, value in values.items():
        if not math.isfinite(value):
            continue
        value = float(f"{value:.6g}")
        old = grown.get(name)
        if old is None:
            if len(grown) < MAX_SERIES and judged(name, watched):
                grown[name] = {"n": 1, "first": [value], "at": [index], "x": [value]}
            continue
        n, first = old["n"] + 1, old["first"]
        grown[name] = {
            "n": n,
            "first": first if len(first) >= FIRST else [*first, value],
            "at": [*old["at"][1 - WINDOW :], index],
            "x": [*old["x"][1 - WINDOW :], value],
        }
    return grown


def series(history: Mapping[str, Any], name: str) -> Series:
    kept = history.get(name)
    return empty(name) if kept is None else Series(name, kept["n"], kept["first"], kept["at"], kept["x"])
