"""Reading decoded samples: the best, the worst and random ones of a step, turn by turn, with what each was paid for."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from dash import html

from dashboards.words import number
from monitor.detect.words import counted
from monitor.store.queries import RolloutView

ROLES = {"prompt": "Prompt", "agent": "Policy", "observation": "Environment"}


def nearest(steps: Sequence[int], wanted: Any) -> int | None:
    """The last step at or before ``wanted`` that has samples; the newest without a wish, the first where all are later."""
    if not steps:
        return None
    if not isinstance(wanted, (int, float)):
        return steps[-1]
    return steps[max(0, bisect_right(steps, wanted) - 1)]


def frame(steps: Sequence[int]) -> Any:
    """The section before anything was picked; the driver picks the step of the address, else the newest."""
    head = html.Div(
        [html.H2("Rollouts"), html.P("What the policy really wrote. Choose a step here, or click a point in any chart.", className="dim")],
        className="organ-head",
    )
    return html.Section([head, html.Div(waiting(steps), id="samples")], id="rollouts", **{"aria-label": "Rollouts"})


def waiting(steps: Sequence[int]) -> Any:
    """What stands in the place of the samples until they are read."""
    return html.Div("Loading", className="loading") if steps else _none()


def reader(steps: Sequence[int], step: int | None, samples: Sequence[RolloutView]) -> Any:
    """The samples of one step beside each other, with ways to the neighbouring steps."""
    if step is None:
        return _none()
    place = list(steps).index(step)
    bar = html.Div(
        [
            _go("Earlier", steps[place - 1] if place > 0 else None),
            html.B(f"Step {step:,}"),
            _go("Later", steps[place + 1] if place + 1 < len(steps) else None),
            html.Span(f"{place + 1} of {counted(len(steps), 'step')} with samples", className="dim"),
        ],
        className="steps",
    )
    return html.Div([bar, html.Div([_sample(sample) for sample in samples], className="samples")])


def _none() -> Any:
    return html.P([html.Code("run.log_rollouts(step, [...])"), " sends a few decoded samples per step; this run has sent none."], className="dim")


def _go(label: str, step: int | None) -> Any:
    return html.Button(label, className="button", disabled=step is None, **{"data-pick": "" if step is None else str(step)})


def _sample(sample: RolloutView) -> Any:
    paid = [html.Div([html.Dt(name), html.Dd(number(value))]) for name, value in sample.rewards.items()]
    paid.append(html.Div([html.Dt("advantage"), html.Dd(number(sample.advantage))]))
    notes = [html.Span("cut by a limit", className="tag")] if sample.truncated else []
    if sample.group:
        notes.append(html.Span(sample.group, className="dim group", title=sample.group))
    head = html.Header([html.H3(sample.pick.capitalize()), *notes])
    turns: list[Any] = [_speech(role, texts) for role, texts in _speeches(sample.turns)]
    if sample.shortened:
        turns.append(
            html.P(
                f"{counted(sample.shortened, 'character')} {'was' if sample.shortened == 1 else 'were'} cut to keep the sample small.",
                className="dim",
            )
        )
    return html.Article([head, html.Dl(paid, className="paid"), html.Div(turns, className="turns")], className=f"card sample pick-{sample.pick}")


def _speeches(turns: Sequence[dict[str, str]]) -> list[tuple[str, list[str]]]:
    """Turns of the same role that follow each other, together."""
    grouped = groupby(turns, key=lambda turn: turn.get("role", "agent"))
    return [(role, [turn.get("text", "") for turn in group]) for role, group in grouped]


def _speech(role: str, texts: Sequence[str]) -> Any:
    return html.Div([html.H4(ROLES.get(role, role)), *(html.Pre(text) for text in texts)], className=f"turn role-{role}")
