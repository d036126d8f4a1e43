"""The banner of a run: one sentence, what proves it and what to do first; then everything that went wrong in the order in which it began."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dash import html

from dashboards.charts import TITLES
from dashboards.words import moment, number, pill
from monitor.detect.words import counted
from monitor.metrics import ORGANS, describe
from monitor.store.queries import AlertView, RunView


def banner(run: RunView, alerts: Sequence[AlertView], drawn: Collection[str] = ORGANS) -> list[Any]:
    """The contents of the verdict's section. ``alerts`` are all of the run's; ``drawn`` are the organs that have charts to jump to."""
    verdict = run.verdict
    state = verdict.get("state") or run.severity
    shown = sorted((alert for alert in alerts if alert.open and alert.severity != "information"), key=lambda alert: (onset(alert), alert.id))
    leading = lead(shown, verdict.get("sentence", ""))
    told = [_headline(run, state, verdict, leading)]
    if len(shown) > 1:
        told.append(_cascade(run, shown))
    organs: Mapping[str, Any] = verdict.get("organs") or {}
    ill = {alert.organ for alert in shown}
    if calm := [name for name in ORGANS if name in organs and name not in ill]:
        told.append(html.Div([_calm(name, organs[name], name in drawn) for name in calm], className="organs"))
    return told


def title_of(alert: AlertView) -> str:
    """The finding's sentence."""
    return alert.finding.get("title") or alert.detector


def onset(alert: AlertView) -> int:
    """Where the condition began, by the detector's estimate, at the latest where the alert was opened."""
    since = alert.finding.get("since_step")
    return alert.opened_step if since is None else min(int(since), alert.opened_step)


def lead(alerts: Sequence[AlertView], sentence: str = "") -> AlertView | None:
    """The alert that speaks for a run: the one that ``sentence`` names, else of the most severe ones the one that began first."""
    if named := [alert for alert in alerts if alert.finding.get("title") and sentence.startswith(alert.finding["title"])]:
        return named[0]
    for severity in ("critical", "warning", "watch"):
        if found := [alert for alert in alerts if alert.severity == severity]:
            return min(found, key=lambda alert: (onset(alert), alert.id))
    return None


def _headline(run: RunView, state: str, verdict: Mapping[str, Any], leading: AlertView | None) -> Any:
    sentence = verdict.get("sentence") or ("No row has been judged yet; is a worker running?" if run.seq else "No row has arrived yet.")
    notes: list[Any] = []
    if run.judged_at is not None:
        notes.append(html.Span(["judged ", moment(run.judged_at, age=True)]))
    if run.judged_seq and run.seq > run.judged_seq:
        notes.append(html.Span(f"{counted(run.seq - run.judged_seq)} not judged yet"))
    if leading is not None and leading.incident is not None:
        notes.append(html.A("Take it on", href=f"../incident/{leading.incident}", className="small"))
    top = html.Div([pill(state), html.P(sentence, className="sentence"), html.Div(notes, className="dim notes")], className="headline-top")
    return html.Div([top, *([facts(leading.finding)] if leading is not None else [])], className=f"headline edge-{state.replace(' ', '-')}")


def _cascade(run: RunView, alerts: Sequence[AlertView]) -> Any:
    """Every open alert as a bar from its onset to now, earliest first; each opens to its evidence."""
    last = max(run.last_step or 0, *(alert.last_step for alert in alerts), 1)
    return html.Div([html.H2("In the order it began"), *(_bar(alert, last) for alert in alerts)], className="cascade")


def _bar(alert: AlertView, last: int) -> Any:
    began = onset(alert)
    left = min(98.0, 100 * began / last)
    line = html.Summary(
        [
            pill(alert.severity),
            html.Span(title_of(alert), className="what"),
            html.Span(TITLES.get(alert.organ, alert.organ), className="dim where"),
            html.Span(html.Span(style={"left": f"{left:.1f}%"}), className="track", **{"aria-hidden": "true"}),
            html.Span(["step ", html.B(f"{began:,}")], className="when"),
        ],
    )
    jump = html.P(html.A(f"See the charts of {TITLES.get(alert.organ, alert.organ).lower()}", href=f"#organ-{alert.organ}"))
    return html.Details([line, html.Div([facts(alert.finding), jump])], className=f"bar-row tone-{alert.severity}")


def facts(finding: Mapping[str, Any], *, folded: bool = True) -> Any:
    """Evidence, likely cause and first remedy; the numbers and what would refute the finding, ``folded`` away or not."""
    front = [("Evidence", finding.get("evidence"), None), ("Likely cause", finding.get("cause"), None), ("Do first", finding.get("advice"), "remedy")]
    told: list[Any] = [html.Div([html.Dt(label), html.Dd(_sentence(text))], className=name) for label, text, name in front if text]
    more = _numbers(finding)
    if finding.get("refutation"):
        more.append(html.Div([html.Dt("Refuted if"), html.Dd(finding["refutation"])]))
    if not folded:
        told, more = told + more, []
    parts: list[Any] = [html.Dl(told, className="facts")]
    if more:
        parts.append(html.Details([html.Summary("Numbers, and what would refute it"), html.Dl(more, className="facts")], className="more"))
    return html.Div(parts, className="told-facts")


def _numbers(finding: Mapping[str, Any]) -> list[Any]:
    at = f"at step {finding['step']:,}" if finding.get("step") is not None else "then"
    spans = [
        html.Span([label, " ", html.B(number(finding[key]))])
        for key, label in (("value", at), ("baseline", "normal for this run"), ("limit", "limit"))
        if finding.get(key) is not None
    ]
    if moved := [describe(name).title for name in finding.get("moved") or ()]:
        spans.append(html.Span(["also moved ", html.B(", ".join(moved[:4]))]))
    title = describe(finding["metric"]).title if finding.get("metric") else "Numbers"
    return [html.Div([html.Dt(title), html.Dd(spans, className="numbers")])] if spans else []


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _calm(organ: str, view: Mapping[str, Any], drawn: bool) -> Any:
    reasons = view.get("reasons") or ()
    lines: list[Any] = [
        html.Div([pill(view.get("state", "unknown")), html.A(TITLES[organ], href=f"#organ-{organ}") if drawn else html.B(TITLES[organ])]),
        html.P(view.get("sentence", "")),
    ]
    if reasons:
        lines.append(html.Details([html.Summary("Why"), html.Ul([html.Li(reason) for reason in reasons])]))
    return html.Div(lines, className="organ")
