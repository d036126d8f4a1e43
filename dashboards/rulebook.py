"""The rules in force as tables: thresholds with unit, default and what they were changed to, the routes of alarms, and what runs are asked."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dash import html

from dashboards.charts import TITLES
from dashboards.tables import cards
from dashboards.words import attribute, number
from monitor.alerts.acting import Act
from monitor.alerts.routing import DAYS, Route
from monitor.alerts.rules import Limits, Rules
from monitor.alerts.spans import write_span
from monitor.detect.contract import Detector, Parameter
from monitor.detect.registry import DETECTORS
from monitor.detect.words import counted
from monitor.metrics import ORGANS

HEADS = ("Detector", "Threshold", "Unit", "Default", "In force", "")


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
            summary = html.Summary(f"{TITLES[organ]}: {counted(len(mine), 'threshold')}")
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
    return cards(label, HEADS, [_row(each) for each in shown], wide=("Detector", "Threshold"))


def _row(each: Threshold) -> list[Any]:
    parameter = each.parameter
    value = each.changed[0][1] if each.changed else parameter.default
    force: list[Any] = [html.Div([html.B(number(value)), html.Span(f" {whom}", className="dim")]) for whom, value in each.changed]
    line = attribute({"table": f"detectors.{each.detector.id}", "name": parameter.name, "value": f"{value:g}"})
    return [
        [html.Div(each.detector.title), html.Div(each.detector.id, className="dim mono")],
        [html.Div(parameter.name, className="mono"), html.Div(parameter.meaning, className="dim")],
        "–" if parameter.unit == "-" else parameter.unit,
        number(parameter.default),
        force or number(parameter.default),
        html.Button("Try", className="button small", title="Try another value in a back-test", **{"data-try": line}),
    ]


def routes_table(routes: Sequence[Route]) -> Any:
    """Who is told of what, when and how often."""
    if not routes:
        return html.P("There is no route: every channel is told of every alarm.", className="dim")
    rows = [[html.B(", ".join(each.channels)), _matcher(each.matcher), f"{each.severity} on", _hours(each), _pace(each)] for each in routes]
    return cards("Routes", ("Channels", "Of", "From", "When", "How often"), rows, wide=("When", "How often"))


def acts_table(acts: Sequence[Act]) -> Any:
    """What runs are asked to do because of an alarm."""
    if not acts:
        return html.P("No run is asked to do anything because of an alarm.", className="dim")
    rows = [[html.B(each.request), _matcher(each.matcher), f"{each.severity} on", "in words only" if each.dry_run else "yes"] for each in acts]
    return cards("What runs are asked", ("Request", "Of", "From", "Asked"), rows)


def _matcher(matcher: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {pattern}" for name, pattern in matcher.items()) or "everything"


def _pace(route: Route) -> str:
    told = [f"gathered every {write_span(route.digest_s)}"] if route.digest_s is not None else ["at once"]
    if route.repeat_s is not None:
        told.append(f"critical again every {write_span(route.repeat_s)} until acknowledged")
    return ", ".join(told)


def _hours(route: Route) -> str:
    days = "every day" if len(route.days) == len(DAYS) else ", ".join(route.days)
    if route.begin is None or route.end is None:
        return days
    zone = f" {route.zone}" if route.zone is not None else " of the worker's clock"
    return f"{days}, {route.begin:%H:%M} to {route.end:%H:%M}{zone}"
