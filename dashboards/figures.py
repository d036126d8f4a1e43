"""Plain values in, Plotly figures out, as dictionaries: what the browser's driver fills with the series it polls.

Building ``plotly.graph_objects`` costs 25 times as much as a dictionary. Colours of axes, grid and text come from the style sheet, so that a
change of theme needs no new figure; traces name a slot of the palette (``meta.slot``) which the driver looks up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dashboards.charts import Chart, Line
from dashboards.verdict import onset, title_of
from monitor.store.queries import AlertView, EventView

SHOWN_EVENTS = ("resume", "regime", "skip", "note", "stop", "pause", "fault", "act", "late_rows", "blind")
"""Kinds that change how curves are to be read. Checkpoints are too many to draw; the list of events has them."""


COUNTED = frozenset(("s", "tokens", "tokens/s", "samples", "sequences", "groups", "steps", "turns", "calls", "versions"))
"""Units whose large and small values read well with the letters of SI prefixes; other quantities get powers of ten."""


def figure(chart: Chart) -> dict[str, Any]:
    """A chart without its data: one trace per line, in the order of the legend."""
    return {"data": [_trace(chart, slot, line) for slot, line in enumerate(chart.lines)], "layout": _layout(chart)}


def _trace(chart: Chart, slot: int, line: Line) -> dict[str, Any]:
    trace: dict[str, Any] = {"name": line.label, "meta": {"metric": line.metric, "slot": slot, "beside": line.beside, "dashed": line.dashed}}
    if chart.kind == "heat":
        return trace | {"type": "heatmap", "showscale": False, "zsmooth": False, "hoverongaps": False}
    trace |= {"type": "scatter", "mode": "lines", "connectgaps": False}
    if chart.kind == "stack":
        trace |= {"stackgroup": "all", "line": {"width": 0.5}}
    return trace


def _layout(chart: Chart) -> dict[str, Any]:
    yaxis: dict[str, Any] = {
        "type": "log" if chart.log else "linear",
        "automargin": False,
        "exponentformat": "SI" if chart.unit in COUNTED else "power",
        "fixedrange": True,
        "nticks": 5,
        "zeroline": False,
        "ticks": "",
    }
    if chart.kind == "stack":
        yaxis |= {"range": [0, 1], "tickformat": ".0%"}
    elif chart.high == 1.0 and chart.low == 0.0 and not chart.log:
        yaxis |= {"rangemode": "tozero", "tickformat": ".1~%"}
    elif chart.low == 0.0 and not chart.log:
        yaxis |= {"rangemode": "tozero"}
    if chart.log:
        yaxis |= {"dtick": 1, "minor": {"showgrid": False}}
    return {
        "autosize": True,
        "showlegend": False,
        "margin": {"l": 46, "r": 12, "t": 10, "b": 32},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "hovermode": "closest" if chart.kind == "heat" else "x unified",
        "hoverdistance": 40,
        "dragmode": "zoom",
        "uirevision": chart.id,
        "xaxis": {
            "nticks": 6,
            "zeroline": False,
            "showgrid": False,
            "exponentformat": "SI",
            "ticks": "",
            "ticklabelstandoff": 7,
            "showspikes": True,
            "spikethickness": 1,
        },
        "yaxis": yaxis,
        "yaxis3": {**yaxis, "overlaying": "y", "tickmode": "auto", "side": "right", "showgrid": False, "visible": False},
        "yaxis2": {"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True},
    }


def marks(alerts: Iterable[AlertView], events: Iterable[EventView] = ()) -> list[dict[str, Any]]:
    """What the driver draws behind the curves: bands of alerts with their limit and baseline, and lines of events.

    A band begins at the estimated onset and ends where the alert was resolved; an open one ends at the newest step (``end`` is None).
    """
    bands = [_band(alert) for alert in alerts if alert.severity in ("warning", "critical")]
    return bands + [_line(event) for event in events if event.kind in SHOWN_EVENTS and event.step is not None]


def _band(alert: AlertView) -> dict[str, Any]:
    finding: Mapping[str, Any] = alert.finding
    return {
        "kind": "alert",
        "severity": alert.severity,
        "metric": finding.get("metric"),
        "moved": list(finding.get("moved") or ()),
        "organ": alert.organ,
        "title": title_of(alert),
        "onset": onset(alert),
        "step": alert.opened_step,
        "end": alert.resolved_step,
        "limit": _finite(finding.get("limit")),
        "baseline": _finite(finding.get("baseline")),
    }


def _line(event: EventView) -> dict[str, Any]:
    """A spell in which we were down has an ``end``."""
    end = {"end": event.detail.get("end")} if event.kind == "blind" else {}
    return {"kind": "event", "step": event.step, "title": event.kind, **end}


def _finite(value: Any) -> float | None:
    """Spelled non-finite limits (``Infinity``) cannot be drawn."""
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
