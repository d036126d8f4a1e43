"""A project over weeks as a picture: when its runs started against where their task reward ended, coloured and shaped by how they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from dashboards.words import SEVERITIES, number
from monitor.store.projects import Past
from monitor.wire import OUTCOMES

MARKS: Mapping[str, tuple[str, str]] = {
    "critical": ("x", "critical"),
    "warning": ("triangle-up", "warning"),
    "watch": ("diamond", "watch"),
    "cannot judge": ("square-open", "unknown"),
    "unknown": ("circle-open", "unknown"),
    "solved": ("star", "solved"),
    "healthy": ("circle", "healthy"),
}
"""Per verdict the symbol and the tone, so that colour never speaks alone."""

SYMBOLS = ("circle", "x", "triangle-up", "triangle-down", "diamond", "square", "star", "pentagon")
UNLABELLED = "no label"
RAIL = 0.04
LEAST = timedelta(days=2)


def figure(runs: Sequence[Past], links: Mapping[str, str], *, best: bool, by_label: bool) -> dict[str, Any]:
    """One trace per verdict, or per label that people gave. Runs without a finite reward lie on the lower rim, not at zero."""
    groups: dict[str, list[Past]] = {}
    for run in runs:
        groups.setdefault((run.outcome or UNLABELLED) if by_label else run.severity, []).append(run)
    order = (*OUTCOMES, UNLABELLED) if by_label else tuple(MARKS)
    data: list[dict[str, Any]] = []
    for name in sorted(groups, key=lambda name: order.index(name) if name in order else len(order)):
        there = [run for run in groups[name] if _value(run, best) is not None]
        absent = [run for run in groups[name] if _value(run, best) is None]
        look = _look(name, by_label)
        if there:
            data.append(_trace(there, links, [_value(run, best) for run in there], look, "y"))
        if absent:
            data.append(_trace(absent, links, [RAIL] * len(absent), look | {"name": f"{look['name']}, no finite reward"}, "y2"))
    return {
        "data": data,
        "layout": {
            "margin": {"l": 52, "r": 16, "t": 8, "b": 56},
            "hovermode": "closest",
            "dragmode": False,
            "showlegend": True,
            "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "itemclick": False, "itemdoubleclick": False},
            "xaxis": {"type": "date", "nticks": 5, "tickangle": 0, "showgrid": False, "zeroline": False, "fixedrange": True, **_span(runs)},
            "yaxis": {
                "zeroline": False,
                "fixedrange": True,
                "nticks": 6,
                "title": {"text": f"{'best' if best else 'last'} task reward", "standoff": 6},
            },
            "yaxis2": {"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True},
        },
    }


def _span(runs: Sequence[Past]) -> dict[str, Any]:
    """At least two days, so that runs of one minute do not fill an axis of milliseconds."""
    begin, end = min(run.created_at for run in runs), max(run.created_at for run in runs)
    pad = max((end - begin) * 0.04, (LEAST - (end - begin)) / 2)
    return {"title": {"text": "started", "standoff": 4}, "range": [(begin - pad).isoformat(), (end + pad).isoformat()]}


def _value(run: Past, best: bool) -> float | None:
    return run.best if best else run.last


def _look(name: str, by_label: bool) -> dict[str, Any]:
    if not by_label:
        symbol, tone = MARKS.get(name, MARKS["unknown"])
        return {"name": SEVERITIES.get(name, name), "symbol": symbol, "meta": {"tone": tone}}
    if name not in OUTCOMES:
        return {"name": UNLABELLED, "symbol": "circle-open", "meta": {"tone": "unknown"}}
    place = OUTCOMES.index(name)
    return {"name": name, "symbol": SYMBOLS[place % len(SYMBOLS)], "meta": {"tone": "healthy"} if name == "healthy" else {"slot": place}}


def _trace(runs: Sequence[Past], links: Mapping[str, str], y: Sequence[float | None], look: Mapping[str, Any], axis: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": look["name"],
        "x": [run.created_at.isoformat() for run in runs],
        "y": list(y),
        "yaxis": axis,
        "text": [said(run) for run in runs],
        "customdata": [links[run.uid] for run in runs],
        "hovertemplate": "%{text}<br>%{x|%b %-d, %H:%M}<extra>%{fullData.name}</extra>",
        "marker": {"symbol": look["symbol"], "size": 10},
        "meta": look["meta"],
    }


def said(run: Past) -> str:
    """A run in a hover text."""
    newest = f", newest {run.bad}" if run.bad else ""
    return f"{_plain(run.shown)}: last {number(run.last)}, best {number(run.best)}{newest}"


def _plain(text: str) -> str:
    """Plotly reads a few tags; a name is none."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
