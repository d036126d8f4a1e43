"""What a comparison finds: differences of the set-up, where runs part, what they came to, and the one against the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dash import html

from dashboards import parallel
from dashboards.charts import TITLES
from dashboards.outcome import Outcome
from dashboards.pages import House
from dashboards.parting import Parting
from dashboards.settings_of import Settings
from dashboards.settings_of import differences as settings_that_differ
from dashboards.words import attribute, number
from monitor.metrics import describe
from monitor.store.queries import RunView

MOST_SETTINGS = 40
MOST_AXES = 8
"""Settings beside the outcomes in the parallel coordinates."""

UNJUDGED = ("reward.total.mean", "adv.nonzero_frac")
"""More is not better: a bonus can be farmed, and a solved task has little advantage left."""


def colour(slot: int) -> dict[str, str]:
    """The style of a mark in a place of the palette."""
    return {"background": f"var(--line-{slot % 10 + 1})"}


def head(run: RunView, slot: int, base: bool) -> Any:
    """The head of a run's column."""
    parts = [html.I(className="dot", style=colour(slot)), run.shown, *([html.Div("baseline", className="sub")] if base else [])]
    return html.Th(parts, scope="col", className="num")


def differences(heads: Sequence[Any], settings: Sequence[Settings]) -> Any:
    """Settings in which the runs differ, the configuration first."""
    found = settings_that_differ(settings)
    title = html.H2("What differs in the set-up")
    if not found:
        return html.Div([title, html.P("Nothing: configuration and environment are the same.", className="dim")], className="block")
    rows = [
        html.Tr([html.Th(each.name, scope="row"), *(html.Td("–" if value is None else value, className="mono num") for value in each.values)])
        for each in found[:MOST_SETTINGS]
    ]
    left = len(found) - len(rows)
    more = [html.P(f"and {left} more", className="dim")] if left else []
    return html.Div([title, _scroll(html.Th("Setting", scope="col"), heads, rows, "What differs"), *more], className="block")


def parting(runs: Sequence[RunView], base: int, found: Sequence[Sequence[Parting]]) -> Any:
    """From which step on each of the others differs from the baseline."""
    others = [run for place, run in enumerate(runs) if place != base]
    lines = [_parts(runs[base], other, each) for other, each in zip(others, found, strict=True)]
    return html.Div([html.H2("Where they part"), *lines], className="block")


def _parts(base: RunView, other: RunView, found: Sequence[Parting]) -> Any:
    name = html.B(other.shown)
    if not found:
        return html.P([name, " does not part from ", html.B(base.shown), " beyond the noise in any key metric."])
    first = found[0]
    rest = [html.Span([describe(each.metric).title, " at ", html.B(f"{each.step:,}")]) for each in found[1:6]]
    line = [name, " parts first at ", html.B(f"step {first.step:,}"), " in ", html.B(describe(first.metric).title), "."]
    return html.Div(
        [html.P(line), *([html.Div([html.Span("then ", className="dim"), *rest], className="facts-line")] if rest else [])], className="parts"
    )


def values(heads: Sequence[Any], metrics: Sequence[str], outcomes: Sequence[Mapping[str, Outcome | None]], base: int) -> Any:
    """What each metric came to, with its distance from the baseline."""
    rows = []
    for name in metrics:
        cells = [each.get(name) for each in outcomes]
        told = [_cell(name, cell, cells[base] if place != base else None) for place, cell in enumerate(cells)]
        described = describe(name)
        unit = described.unit if described.unit not in ("-", "fraction") else ""
        title = [described.title, " ", html.Span(f"{TITLES[described.organ]}{', ' if unit else ''}{unit}", className="dim small")]
        rows.append(html.Tr([html.Th(title, scope="row"), *told]))
    if not rows:
        return html.Div([html.H2("Values"), html.P("None of these runs has logged a key metric.", className="dim")], className="block")
    note = html.P("Mean of the last 10 points, below it the best; each with its distance from the baseline.", className="dim")
    return html.Div([html.H2("Values"), note, _scroll(html.Th("Metric", scope="col"), heads, rows, "Values")], className="block")


def _cell(name: str, cell: Outcome | None, base: Outcome | None) -> Any:
    if cell is None:
        return html.Td("–", className="num dim", title="not logged")
    parts: list[Any] = [html.B(number(cell.last)), *_distance(name, cell.last, base.last if base else None)]
    if cell.best is not None:
        parts.append(html.Div(["best ", number(cell.best), *_distance(name, cell.best, base.best if base else None)], className="sub"))
    if cell.bad is not None:
        parts.append(html.Div(["newest ", html.B(cell.bad, className="worse")], className="sub"))
    return html.Td(parts, className="num")


def _distance(name: str, value: float | None, base: float | None) -> list[Any]:
    """How far a value is from the baseline's, in its unit and as a share of it; whether that is better, where more or less of it is."""
    if value is None or base is None:
        return []
    gap = value - base
    share = gap / abs(base) if base else None
    if gap == 0 or (share is not None and abs(share) < 0.005):
        return [html.Span(" same", className="change")]
    healthy = describe(name).healthy
    judged = healthy in ("up", "down") and name not in UNJUDGED and (share is None or abs(share) > 0.02)
    word = " better" if judged and (gap > 0) == (healthy == "up") else " worse" if judged else ""
    part = "" if share is None else f" ({share:+.0%})" if abs(share) < 10 else f" ({value / base:.3g}×)"
    return [html.Span(f" {gap:+.3g}{part}{word}".replace("-", "−"), className=f"change{word}")]


def across(
    house: House, runs: Sequence[RunView], slots: Sequence[int], settings: Sequence[Settings], outcomes: Sequence[Mapping[str, Outcome | None]]
) -> Any:
    """Settings against outcomes, one line per run, with the same as a table."""
    found = [each for each in settings_that_differ(settings) if each.name != "tags" and not each.name.startswith("environment.")]
    axes = [parallel.Axis(each.name, tuple(parallel.number_or_word(value) for value in each.values)) for each in found[:MOST_AXES]]
    task = next((run.task_reward for run in runs if run.task_reward), "reward.task.mean")
    for metric, best in ((task, False), (task, True), ("entropy.mean", False), ("kl_ref.k3", False)):
        ends = [each.get(metric) for each in outcomes]
        if any(ends):
            title = f"{'Best' if best else 'Last'} {describe(metric).title.lower().replace('kl', 'KL')}"
            axes.append(parallel.Axis(title, tuple(None if end is None else end.best if best else end.last for end in ends), describe(metric).unit))
    names = [run.shown for run in runs]
    drawn = parallel.figure(axes, names, slots, [house.run(run.uid) for run in runs])
    heads = [html.Th(axis.title, scope="col", className="num") for axis in axes]
    rows = [
        html.Tr(
            [
                html.Th(html.A(name, href=house.run(run.uid)), scope="row"),
                *(html.Td(parallel.told(a.values[i], a.unit), className="num") for a in axes),
            ]
        )
        for i, (run, name) in enumerate(zip(runs, names, strict=True))
    ]
    left = len(found) - MOST_AXES
    note = "One line per run, each axis with its own scale. A click on a line opens its run."
    if left > 0:
        note += f" The first {MOST_AXES} of {len(found)} settings that differ are drawn."
    plot = html.Div(
        className="figure",
        role="img",
        style={"minWidth": f"{112 * len(axes)}px"},
        **{
            "aria-label": f"{len(runs)} runs across {', '.join(axis.title for axis in axes)}; the table below says the same",
            "data-figure": attribute(drawn),
        },
    )
    table = html.Details(
        [html.Summary("As a table"), _scroll(html.Th("Run", scope="col"), heads, rows, "Settings and outcomes as a table")], className="more"
    )
    wide = html.Div(plot, className="scroll", tabIndex=0, role="region", **{"aria-label": "Settings and outcomes"})
    return html.Div([html.H2("Settings and outcomes"), html.P(note, className="dim"), wide, table], className="block", id="parallel")


def _scroll(first: Any, heads: Sequence[Any], rows: Sequence[Any], label: str) -> Any:
    table = html.Table([html.Thead(html.Tr([first, *heads])), html.Tbody(rows)], className="plain compare")
    return html.Div(table, className="scroll", tabIndex=0, role="region", **{"aria-label": label})
