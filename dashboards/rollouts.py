"""Reading one step: what was found and what happened there, and its decoded samples, turn by turn, with what each was paid for."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from dash import html

from dashboards.verdict import onset, title_of
from dashboards.words import moment, number, pill
from monitor.detect.words import counted
from monitor.store.queries import AlertView, EventView, RolloutView

ROLES = {"prompt": "Prompt", "agent": "Policy", "observation": "Environment"}


def nearest(steps: Sequence[int], wanted: Any) -> int | None:
    """The last step at or before ``wanted`` that has samples; the newest without a wish, the first where all are later."""
    if not steps:
        return None
    if not isinstance(wanted, (int, float)):
        return steps[-1]
    return steps[max(0, bisect_right(steps, wanted) - 1)]


AROUND = 5
"""Steps to both sides within which events are told with a step."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A step that somebody picked: the findings that held there and the events near it."""

    step: int
    findings: tuple[AlertView, ...]
    events: tuple[EventView, ...]


def moment_of(step: int, width: int, alerts: Sequence[AlertView], events: Sequence[EventView]) -> Moment:
    """What is known of ``step``, which stands for ``width`` steps where a chart is drawn in buckets."""
    last = step + width - 1
    held = [alert for alert in alerts if onset(alert) <= last and (alert.resolved_step is None or alert.resolved_step >= step)]
    near = [event for event in events if event.step is not None and event.step <= last + AROUND and step - AROUND <= _end(event, event.step)]
    return Moment(step, tuple(sorted(held, key=onset)), tuple(near))


def _end(event: EventView, step: int) -> int:
    """The last step that an event which happened at ``step`` is about."""
    end = event.detail.get("end") if event.kind == "blind" else None
    return end if isinstance(end, int) else step


def summary(at: Moment, read: int | None) -> list[Any]:
    """One line for the bar that a click on a curve brings up."""
    parts = [counted(len(at.findings), "finding"), counted(len(at.events), "event"), "no rollouts" if read is None else f"rollouts of step {read:,}"]
    return [
        html.Span([html.B(f"Step {at.step:,}"), ": ", ", ".join(parts)]),
        html.A("Read", href="#rollouts", className="button"),
        html.Button("Unmark", className="button", **{"data-unpick": ""}),
    ]


def _happened(at: Moment) -> Any:
    lines = [
        html.Li(
            [pill(alert.severity), html.A(title_of(alert), href=f"#organ-{alert.organ}"), html.Span(f"since step {onset(alert):,}", className="dim")]
        )
        for alert in at.findings
    ]
    lines += [
        html.Li([html.Span(event.kind, className="state"), html.Span(detail(event)), html.Span(f"at step {event.step:,}", className="dim")])
        for event in at.events
    ]
    told = html.Ul(lines) if lines else html.P(f"No finding held, and nothing happened within {AROUND} steps.", className="dim")
    return html.Div([html.H3(f"At step {at.step:,}"), told], className="happened")


def detail(event: EventView) -> Any:
    """What an event says of itself."""
    if event.kind == "blind":
        return [f"the {event.detail['component']} was down until ", moment(event.detail["until"])]
    return ", ".join(f"{key} {value}" for key, value in event.detail.items())


def frame(steps: Sequence[int]) -> Any:
    """The section before anything was picked; the driver picks the step of the address, else the newest."""
    head = html.Div(
        [
            html.H2("Rollouts"),
            html.P("What the policy really wrote. Choose a step here, or click a point in any chart to read what happened there.", className="dim"),
        ],
        className="organ-head",
    )
    return html.Section([head, html.Div(waiting(steps), id="samples")], id="rollouts", **{"aria-label": "Rollouts"})


def waiting(steps: Sequence[int]) -> Any:
    """What stands in the place of the samples until they are read."""
    return html.Div("Loading", className="loading") if steps else _none()


def reader(steps: Sequence[int], step: int | None, samples: Sequence[RolloutView], at: Moment | None = None) -> Any:
    """The samples of one step beside each other, with ways to the neighbouring steps; above them what happened at the step that was picked."""
    head = [] if at is None else [_happened(at)]
    if step is None:
        return html.Div([*head, _none()])
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
    return html.Div([*head, bar, html.Div([_sample(sample) for sample in samples], className="samples")])


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
