"""The letter about one change of an alert. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from monitor import metrics
from monitor.deliver.letter import Excerpt
from monitor.deliver.sparkline import sparkline
from monitor.detect.contract import Finding

MAX_EXCERPT = 1200
"""Characters of a rollout that travel with a message."""


@dataclass(frozen=True, slots=True)
class Also:
    """Another alarm of the same incident."""

    detector: str
    severity: str
    title: str
    since_step: int


@dataclass(frozen=True, slots=True)
class Message:
    """One change of one alert on one run.

    ``uid`` is the transition's and the receiver's key for deduplication; ``alert`` the episode's, which groups the messages of one story.
    ``incident`` groups the alerts of one story, of which ``cascade`` names the others, first mover first. ``verdict`` is the run's sentence at
    that time, ``link`` the run's page at the step, ``incident_link`` the incident's, ``series`` the finding's metric up to the alarm,
    ``standing`` the incident's state by now (a severity or ``resolved``), ``opened_at`` when the alert opened.
    ``acted`` is what the rules asked the run to do because of it.
    """

    uid: str
    alert: str
    run: str
    run_name: str
    project: str
    detector: str
    organ: str
    from_state: str
    to_state: str
    reason: str
    step: int
    opened_step: int
    at: datetime
    finding: Finding
    verdict: str = ""
    link: str = ""
    excerpts: tuple[Excerpt, ...] = ()
    incident: str = ""
    cascade: tuple[Also, ...] = ()
    series: tuple[float, ...] = ()
    standing: str = ""
    opened_at: datetime | None = None
    thread: Mapping[str, Any] | None = None
    acted: str = ""
    incident_link: str = ""

    @property
    def story(self) -> str:
        return self.incident or self.alert

    @property
    def state(self) -> str:
        return self.to_state

    @property
    def title(self) -> str:
        """``Critical: importance weights exploded`` or ``Resolved: ...``; the finding's sentence without its full stop."""
        sentence = self.finding.title.strip().rstrip(".")
        return f"{self.heading}: {sentence}"

    @property
    def heading(self) -> str:
        if self.to_state == "ok":
            return "Over"
        word = self.to_state.capitalize()
        return {"reopened": f"{word} again", "rose": f"Now {self.to_state}", "repeated": f"Still {self.to_state}"}.get(self.reason, word)

    @property
    def summary(self) -> str:
        """One line that says who, what and where."""
        return f"{self.title} ({self.project} / {self.run_name}, step {self.step})"

    @property
    def numbers(self) -> tuple[tuple[str, str], ...]:
        """What was measured, what was normal for this run, and the limit; pairs of label and text."""
        finding, metric = self.finding, metrics.describe(self.finding.metric)
        unit = "" if metric.unit in ("-", "fraction", "ratio", "reward") else f" {metric.unit}"
        rows = [(metric.title if metric.organ != "custom" else metric.name, f"{figure(finding.value)}{unit}")]
        if finding.baseline is not None:
            rows.append(("Normal for this run", f"{figure(finding.baseline)}{unit}"))
        if finding.limit is not None:
            rows.append(("Limit", f"{figure(finding.limit)}{unit}"))
        return tuple(rows)

    @property
    def onset(self) -> int:
        """The step at which the condition began by the detector's estimate, at the latest where the alert opened."""
        since = self.finding.since_step
        return self.opened_step if since is None else min(since, self.opened_step)

    @property
    def links(self) -> tuple[tuple[str, str], ...]:
        return tuple((words, link) for words, link in (("Open the incident", self.incident_link), ("Open the run", self.link)) if link)

    @property
    def curve(self) -> str:
        """The course of the metric up to the alarm, with its name."""
        line = sparkline(self.series)
        return f"{line}  {self.finding.metric}" if line else ""

    @property
    def small(self) -> tuple[str, ...]:
        parts = [f"{self.project} / {self.run_name}", f"step {self.step}", f"{self.organ}: {self.detector}"]
        if self.onset != self.step:
            parts.append(f"since step {self.onset}")
        return tuple(parts)

    @property
    def paragraphs(self) -> tuple[tuple[str, str], ...]:
        """Pairs of label and sentence: why we think so, the likely reason, what to do, and what would prove us wrong."""
        finding = self.finding
        labelled = [("Evidence", finding.evidence), ("Likely cause", finding.cause), ("First remedy", finding.advice), ("Done", self.acted)]
        if self.to_state in ("resolved", "ok"):
            labelled = [("What it was", finding.evidence)]
        elif finding.refutation:
            labelled.append(("What would speak against it", finding.refutation))
        if self.cascade:
            lines = (f"step {each.since_step:,}: {each.title.rstrip('.')} ({each.severity})" for each in self.cascade)
            labelled.append(("Same incident, in the order it began", "\n".join(lines)))
        return tuple((label, text) for label, text in labelled if text)


def figure(value: float) -> str:
    """A number as people write it: four significant digits, thousands separated, no exponent between 0.0001 and a billion."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "infinity" if value > 0 else "-infinity"
    size = abs(value)
    if size and (size < 1e-4 or size >= 1e9):
        return f"{value:.3e}"
    if size >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def excerpt(text: str, limit: int = MAX_EXCERPT) -> str:
    """``text`` with its middle cut out, so that beginning and end stay readable."""
    if len(text) <= limit:
        return text
    head, tail = limit * 2 // 3, limit // 3 - 40
    return f"{text[:head]}\n[... {len(text) - head - tail:,} characters ...]\n{text[-tail:]}"
