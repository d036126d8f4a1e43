"""The banner of a run: one sentence for the whole, one per organ, each with what proves it and what to do first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dash import html

from dashboards.charts import TITLES
from dashboards.words import moment, number, pill
from monitor.metrics import ORGANS, describe
from monitor.store.queries import AlertView, RunView

CALM = ("healthy", "solved")


def banner(run: RunView, alerts: Sequence[AlertView]) -> list[Any]:
    """The contents of the verdict's section. ``alerts`` are the run's, open ones first."""
    verdict = run.verdict
    state = verdict.get("state") or run.severity
    open_alerts = [alert for alert in alerts if alert.open and alert.severity != "information"]
    organs: Mapping[str, Any] = verdict.get("organs") or {}
    ill = [
        name
        for name in ORGANS
        if any(alert.organ == name for alert in open_alerts) or organs.get(name, {}).get("state") in ("watch", "warning", "critical")
    ]
    calm = [name for name in ORGANS if name in organs and name not in ill]
    told = [_headline(run, state, verdict)]
    told += [_ill(name, organs.get(name, {}), [alert for alert in open_alerts if alert.organ == name]) for name in ill]
    if calm:
        told.append(html.Div([_calm(name, organs[name]) for name in calm], className="organs"))
    return told


def _headline(run: RunView, state: str, verdict: Mapping[str, Any]) -> Any:
    sentence = verdict.get("sentence") or (
        "No row has been judged yet; is a worker running? `vitals work` starts one." if run.seq else "No row has arrived yet."
    )
    since = verdict.get("since_step")
    behind = run.seq - run.judged_seq
    notes = [html.Span(f"since step {since:,}")] if since is not None else []
    if run.judged_at is not None:
        notes.append(html.Span(["judged ", moment(run.judged_at, age=True)]))
    if behind > 0 and run.judged_seq:
        notes.append(html.Span(f"{behind:,} rows not judged yet"))
    return html.Div([pill(state), html.P(sentence, className="sentence"), html.Div(notes, className="dim notes")], className="headline")


def _ill(organ: str, view: Mapping[str, Any], alerts: Sequence[AlertView]) -> Any:
    state = view.get("state") or alerts[0].severity
    if not alerts:
        return html.Article([html.Header([pill(state), html.H3(TITLES[organ])]), html.P(view.get("sentence", ""))], className="ill")
    return html.Div([_alert(organ, alert) for alert in alerts], className="ills")


def _alert(organ: str, alert: AlertView) -> Any:
    finding = alert.finding
    since = finding.get("since_step")
    began = alert.opened_step if since is None else min(since, alert.opened_step)
    return html.Article(
        [
            html.Header(
                [
                    pill(alert.severity),
                    html.H3(finding.get("title") or alert.detector),
                    html.Span(f"{TITLES.get(organ, organ)} · since step {began:,}", className="dim"),
                ]
            ),
            facts(finding),
        ],
        className=f"ill edge-{alert.severity}",
    )


def facts(finding: Mapping[str, Any]) -> Any:
    """Evidence, likely cause, first remedy and, folded away, the numbers and what would refute the finding."""
    rows = [
        ("Evidence", finding.get("evidence")),
        ("Likely cause", finding.get("cause")),
        ("Do first", finding.get("advice")),
        ("Would refute it", finding.get("refutation")),
    ]
    moved = [describe(name).title for name in finding.get("moved") or ()]
    numbers = [
        html.Span([label, " ", html.B(number(finding[key]))])
        for key, label in (("value", "now"), ("baseline", "normal for this run"), ("limit", "limit"))
        if finding.get(key) is not None
    ]
    if moved:
        numbers.append(html.Span(["also moved ", html.B(", ".join(moved[:4]))]))
    told = [html.Div([html.Dt(label), html.Dd(text)], className="remedy" if label == "Do first" else None) for label, text in rows if text]
    if numbers:
        told.append(
            html.Div([html.Dt(describe(finding["metric"]).title if finding.get("metric") else "Numbers"), html.Dd(numbers, className="numbers")])
        )
    return html.Dl(told, className="facts")


def _calm(organ: str, view: Mapping[str, Any]) -> Any:
    reasons = view.get("reasons") or ()
    lines: list[Any] = [
        html.Div([pill(view.get("state", "unknown")), html.A(TITLES[organ], href=f"#organ-{organ}")]),
        html.P(view.get("sentence", "")),
    ]
    if reasons:
        lines.append(html.Details([html.Summary("Why"), html.Ul([html.Li(reason) for reason in reasons])]))
    return html.Div(lines, className="organ")
