"""The rules in force as tables: thresholds with unit, default and what they were changed to, and the routes of alarms."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dash import html

from dashboards.charts import TITLES
from dashboards.words import attribute, number
from monitor.alerts.routing import DAYS, Route
from monitor.alerts.rules import Limits, Rules
from monitor.detect.contract import Detector, Parameter
from monitor.detect.registry import DETECTORS
from monitor.metrics import ORGANS


@dataclass(frozen=True, slots=True)
class Threshold:
    """One threshold and, where it differs from its default, for whom and to what."""

    detector: Detector
    parameter: Parameter
    changed: tuple[tuple[str, float], ...] = ()


def thresholds(rules: Rules) -> list[Threshold]:
    """Every threshold of every detector, in the order of the organs."""
    ordered = sorted(DETECTORS, key=lambda detector: ORGANS.index(detector.organ))
    return [Threshold(each, one, tuple(_changes(rules, each.id, one.name))) for each in ordered for one in each.parameters]


def _changes(rules: Rules, detector: str, name: str) -> Iterator[tuple[str, float]]:
    layers: list[tuple[str, Limits]] = [("every run", rules.general)]
    layers += [(f"project {project}", limits) for project, limits in rules.projects.items()]
    layers += [(f"run {run}", limits) for run, limits in rules.runs.items()]
    for whom, limits in layers:
        if name in limits.get(detector, {}):
            yield whom, limits[detector][name]


def rules_tables(rules: Rules) -> list[Any]:
    """What was changed, then every threshold, folded by organ."""
    every = thresholds(rules)
    changed = [each for each in every if each.changed]
    parts: list[Any] = [
        _table(changed, "Changed thresholds")
        if changed
        else html.P("Every threshold has its default.", className="dim")
    ]  # fmt: skip
    for organ in ORGANS:
        if mine := [each for each in every if each.detector.organ == organ]:
            summary = html.Summary(f"{TITLES[organ]}: {len(mine)} {'threshold' if len(mine) == 1 else 'thresholds'}")
            parts.append(html.Details([summary, _table(mine, f"Thresholds of {TITLES[organ]}")], className="more"))
    return parts


def written(rules: Rules) -> str:
    """The changed thresholds as a rules file has them."""
    layers = [("", rules.general)]
    layers += [(f"project.{json.dumps(project, ensure_ascii=False)}.", limits) for project, limits in rules.projects.items()]
    layers += [(f"run.{json.dumps(run, ensure_ascii=False)}.", limits) for run, limits in rules.runs.items()]
    tables = [
        f"[{path}detectors.{detector}]\n" + "".join(f"{name} = {value!r}\n" for name, value in values.items())
        for path, limits in layers
        for detector, values in limits.items()
    ]
    return "\n".join(tables)


def _table(shown: Sequence[Threshold], label: str) -> Any:
    head = html.Tr([html.Th(each, scope="col") for each in ("Detector", "Threshold", "Unit", "Default", "In force", "")])
    table = html.Table([html.Thead(head), html.Tbody([_row(each) for each in shown])], className="plain cards", **{"aria-label": label})
    return html.Div(table, className="scroll", tabIndex=0, role="region", **{"aria-label": label})


def _row(each: Threshold) -> Any:
    parameter = each.parameter
    unit = "–" if parameter.unit == "-" else parameter.unit
    value = each.changed[0][1] if each.changed else parameter.default
    force: list[Any] = [html.Div([html.B(number(value)), html.Span(f" {whom}", className="dim")]) for whom, value in each.changed]
    line = attribute({"table": f"detectors.{each.detector.id}", "name": parameter.name, "value": f"{value:g}"})
    return html.Tr(
        [
            _cell("Detector", [html.Div(each.detector.title), html.Div(each.detector.id, className="dim mono")], "wide"),
            _cell("Threshold", [html.Div(parameter.name, className="mono"), html.Div(parameter.meaning, className="dim")], "wide"),
            _cell("Unit", unit),
            _cell("Default", number(parameter.default)),
            _cell("In force", force or number(parameter.default)),
            _cell("", html.Button("Try", className="button small", title="Try another value in a back-test", **{"data-try": line})),
        ]
    )


def _cell(label: str, content: Any, kind: str = "") -> Any:
    return html.Td(content, className=kind, **{"data-label": label})


def routes_table(routes: Sequence[Route]) -> Any:
    """Who is told of what, and when."""
    if not routes:
        return html.P("There is no route: every channel is told of every alarm.", className="dim")
    head = html.Tr([html.Th(each, scope="col") for each in ("Channels", "Of", "From", "When")])
    rows = [
        html.Tr(
            [
                _cell("Channels", html.B(", ".join(route.channels))),
                _cell("Of", ", ".join(f"{name} {pattern}" for name, pattern in route.matcher.items()) or "everything"),
                _cell("From", f"{route.severity} on"),
                _cell("When", _hours(route)),
            ]
        )
        for route in routes
    ]
    table = html.Table([html.Thead(head), html.Tbody(rows)], className="plain cards", **{"aria-label": "Routes"})
    return html.Div(table, className="scroll", tabIndex=0, role="region", **{"aria-label": "Routes"})


def _hours(route: Route) -> str:
    days = "every day" if len(route.days) == len(DAYS) else ", ".join(route.days)
    if route.begin is None or route.end is None:
        return days
    zone = f" {route.zone}" if route.zone is not None else " of the worker's clock"
    return f"{days}, {route.begin:%H:%M} to {route.end:%H:%M}{zone}"
