"""What the browser needs to act on an incident: its state, and what can be silenced from it. ``f_acts.js`` makes buttons and requests of it."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Mapping
from typing import Any

from monitor.alerts.routing import Facts, matches
from monitor.store.incidents import Incident, leading
from monitor.store.queries import RunView


def now(incident: Incident, run: RunView, silences: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The present state; ``silences`` are those in force, of which the ones that hush this incident are told. Times are Unix seconds."""
    return {
        "uid": str(incident.uid),
        "run": run.uid,
        "state": incident.state,
        "by": incident.acknowledged_by,
        "at": None if incident.acknowledged_at is None else incident.acknowledged_at.timestamp(),
        "resolved_step": incident.resolved_step,
        "mark": incident.mark,
        "outcome": run.outcome,
        "silences": [silence(each) for each in silences if hushes(each["matcher"], incident, run)],
    }


def silence(found: Mapping[str, Any]) -> dict[str, Any]:
    """A silence as JSON values."""
    return {**{name: found[name] for name in ("id", "matcher", "author", "reason")}, "until": found["until"].timestamp()}


def hushes(matcher: Mapping[str, str], incident: Incident, run: RunView) -> bool:
    """Whether a silence keeps any alarm of the incident from being told."""
    alarms = (Facts(run.project, run.uid, run.name, each.detector, each.organ, each.severity, run.tags) for each in incident.alerts)
    return any(matches(matcher, alarm) for alarm in alarms)


def scopes(incident: Incident) -> list[tuple[str, dict[str, str]]]:
    """What can be silenced from an incident: a text and a matcher each, the whole run first."""
    run, project = {"run": glob.escape(incident.run)}, {"project": glob.escape(incident.project)}
    found = [("every alarm of this run", run), (f"every alarm of the project {incident.project}", project)]
    if (member := leading(incident.alerts)) is not None:
        found.insert(1, (f"{member.detector} in this run", {**run, "detector": member.detector}))
        found.insert(2, (f"{member.detector} in the project {incident.project}", {**project, "detector": member.detector}))
    return found
