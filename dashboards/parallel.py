"""Parallel coordinates: one line per run across the settings in which the runs differ and what they came to.

Each axis is normalised to 0..1 by the builder and written with its real values; what a run does not have lies on a rail below, never at zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

RAIL = -0.16
"""Where what is missing or not finite lies."""

HEADS = (1.13, 1.25)
"""Where titles stand in turns, so that neighbours do not run into each other."""

LOG_FROM = 30.0
"""An axis of positive numbers is logarithmic when the largest is this many times the smallest."""

TICKS = 4
LONGEST = 16
"""Characters of a tick; the hover text has the rest."""

Value = float | str | None


@dataclass(frozen=True, slots=True)
class Axis:
    """One quantity of every run: numbers, words, or None where a run has none. It is of words as soon as one value is."""

    title: str
    values: tuple[Value, ...]
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Placed:
    """An axis with its places: ``at`` per run, and the ticks as (place, text)."""

    axis: Axis
    at: tuple[float, ...]
    ticks: tuple[tuple[float, str], ...]


def place(axis: Axis) -> Placed:
    """Where the values of an axis lie between 0 and 1."""
    finite = [value for value in axis.values if isinstance(value, float) and math.isfinite(value)]
    words = sorted({value for value in axis.values if isinstance(value, str)})
    if words:
        names = sorted({*words, *(_text(value) for value in finite)})
        spots = {name: (i + 0.5) / len(names) if len(names) == 1 else i / (len(names) - 1) for i, name in enumerate(names)}
        at = tuple(RAIL if value is None else spots.get(_text(value), RAIL) for value in axis.values)
        return Placed(axis, at, tuple((spot, name) for name, spot in spots.items()))
    if not finite:
        return Placed(axis, tuple(RAIL for _ in axis.values), ())
    low, high = min(finite), max(finite)
    log = low > 0 and high / low >= LOG_FROM
    scaled = math.log10 if log else float
    span = scaled(high) - scaled(low)

    def spot(value: float) -> float:
        return 0.5 if span <= 0 or not math.isfinite(span) else (scaled(value) - scaled(low)) / span

    at = tuple(spot(value) if isinstance(value, float) and math.isfinite(value) else RAIL for value in axis.values)
    marks = _log_ticks(low, high) if log else _ticks(low, high)
    return Placed(axis, at, tuple((spot(tick), _text(tick)) for tick in marks))


def figure(axes: Sequence[Axis], names: Sequence[str], slots: Sequence[int], links: Sequence[str]) -> dict[str, Any]:
    """The picture of ``axes`` for the runs called ``names``, drawn in the palette's ``slots``; a click on a line follows its link."""
    placed = [place(axis) for axis in axes]
    lines = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": name,
            "x": list(range(len(placed))),
            "y": [each.at[row] for each in placed],
            "text": [f"{each.axis.title}: {told(each.axis.values[row], each.axis.unit)}" for each in placed],
            "customdata": [links[row]] * len(placed),
            "hovertemplate": "%{text}<extra>%{fullData.name}</extra>",
            "marker": {"size": 7, "symbol": ["circle-open" if each.at[row] == RAIL else "circle" for each in placed]},
            "meta": {"slot": slots[row]},
        }
        for row, name in enumerate(names)
    ]
    missing = any(spot == RAIL for each in placed for spot in each.at)
    notes = [_note(i, spot, text, "left", 8) for i, each in enumerate(placed) for spot, text in each.ticks]
    heads = {"font": {"weight": 650, "size": 12}}
    notes += [_note(i, HEADS[i % 2], each.axis.title, "center", 0) | heads | {"hovertext": each.axis.title} for i, each in enumerate(placed)]
    notes += [_note(i, RAIL, "none", "left", 8) for i, each in enumerate(placed) if RAIL in each.at]
    rails = [{"type": "line", "x0": i, "x1": i, "y0": 0, "y1": 1, "layer": "below"} for i in range(len(placed))]
    return {
        "data": lines,
        "layout": {
            "margin": {"l": 24, "r": 70, "t": 8, "b": 10},
            "hovermode": "closest",
            "dragmode": False,
            "xaxis": {"visible": False, "range": [-0.25, len(placed) - 0.75], "fixedrange": True},
            "yaxis": {"visible": False, "range": [RAIL - 0.06 if missing else -0.06, 1.32], "fixedrange": True},
            "annotations": notes,
            "shapes": rails,
        },
    }


def told(value: Value, unit: str = "") -> str:
    """A value for reading; what is missing is said."""
    if value is None:
        return "none"
    return f"{_text(value)}{f' {unit}' if unit and unit != '-' and isinstance(value, float) else ''}"


def number_or_word(text: str | None) -> Value:
    """A printed setting as what it is."""
    if text is None or text == "null":
        return None
    try:
        return float(text)
    except ValueError:
        return text.strip('"')


def _text(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"


def _short(text: str, longest: int = LONGEST) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _note(x: float, y: float, text: str, anchor: str, shift: int) -> dict[str, Any]:
    where = {"xref": "x", "yref": "y", "x": x, "y": y, "xanchor": anchor, "xshift": shift}
    return where | {"text": _short(text, 22 if anchor == "center" else LONGEST), "showarrow": False}


def _ticks(low: float, high: float) -> list[float]:
    """The ends of an axis, and round numbers between them that keep a distance from the ends."""
    span = high - low
    if not span > 0 or not math.isfinite(span):
        return [low]
    rough = span / TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * each for each in (1, 2, 5, 10) if power * each >= rough)
    inner = [step * i for i in range(math.ceil(low / step), math.floor(high / step) + 1)] if step > 0 and abs(low / step) < 1e12 else []
    return [low, *(tick for tick in inner if 0.12 < (tick - low) / span < 0.88), high]


def _log_ticks(low: float, high: float) -> list[float]:
    """The ends, and powers of ten between them."""
    first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
    stride = max(1, (last - first) // TICKS)
    span = math.log10(high) - math.log10(low)
    inner = [10.0**power for power in range(first, last + 1, stride)]
    return [low, *(tick for tick in inner if 0.12 < (math.log10(tick) - math.log10(low)) / span < 0.88), high]
