"""Small pieces every page is made of: pills, times, numbers, empty states. Colour never speaks alone: each pill has an icon and a word."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from dash import html

SEVERITIES = {
    "critical": "Critical",
    "warning": "Warning",
    "watch": "Watch",
    "information": "Note",
    "healthy": "Healthy",
    "solved": "Solved",
    "cannot judge": "Cannot judge",
    "unknown": "Not judged yet",
    "ok": "Gone",
    "resolved": "Resolved",
}
FOLD = 16
"""Groups with more settings than this are folded."""

STATES = {"running": "Running", "finished": "Finished", "crashed": "Crashed", "killed": "Killed", "stopped": "Stopped"}


def pill(severity: str) -> Any:
    """The severity as a word with its icon."""
    known = severity if severity in SEVERITIES else "unknown"
    return html.Span([html.Span(className="icon", **{"aria-hidden": "true"}), SEVERITIES[known]], className=f"pill sev-{known.replace(' ', '-')}")


def moment(at: datetime, *, age: bool = False, near: bool = False) -> Any:
    """A time that the browser writes in the viewer's zone, as an ``age`` that it keeps up to date, or without the day where that is today."""
    extra = {"data-age": "1"} if age else {"data-near": "1"} if near else {}
    return html.Time(dateTime=at.isoformat(), **extra)


def icon(name: str) -> Any:
    return html.Span(className=f"glyph glyph-{name}", **{"aria-hidden": "true"})


def number(value: Any) -> str:
    """At most four significant digits; spelled non-finite values and words stay as they are."""
    if isinstance(value, bool) or value is None:
        return "–" if value is None else str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:.4g}"
    return str(value)


def attribute(value: Any) -> str:
    """JSON for a ``data-`` attribute."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def empty(title: str, *rest: Any) -> Any:
    """A state with nothing to show, which says why and what to do."""
    return html.Div([html.H2(title), *rest], className="empty")


def choice(query: Mapping[str, str], key: str, label: str, options: Sequence[tuple[str, str]]) -> Any:
    """A choice that is part of the address; the driver puts it there."""
    inner = html.Select([html.Option(text, value=value) for value, text in options], **{"data-choice": key, "data-chosen": query.get(key, "")})
    return html.Label([html.Span(label, className="hidden"), inner], className="field select")


def pairs(values: Mapping[str, Any]) -> Any:
    """Nested settings as a two-column list with dotted names; a large group (installed packages) is folded."""
    large = {name: value for name, value in values.items() if isinstance(value, Mapping) and len(flatten(value)) > FOLD}
    plain = flatten({name: value for name, value in values.items() if name not in large})
    parts: list[Any] = [_list(plain)] if plain else []
    for name, value in sorted(large.items()):
        rows = flatten(value)
        parts.append(html.Details([html.Summary(f"{name} ({len(rows)})"), _list(rows)], className="more"))
    return html.Div(parts) if parts else html.P("Nothing was logged.", className="dim")


def _list(rows: list[tuple[str, str]]) -> Any:
    return html.Dl([html.Div([html.Dt(name), html.Dd(text)]) for name, text in rows], className="pairs")


def flatten(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Dotted names and printed values of nested settings, sorted by name."""
    found: list[tuple[str, str]] = []
    for name in sorted(values):
        value = values[name]
        if isinstance(value, Mapping) and value:
            found += flatten(value, f"{prefix}{name}.")
        else:
            found.append((f"{prefix}{name}", value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)))
    return found
