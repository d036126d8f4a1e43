"""The ``[[act]]`` tables of ``vitals.toml``: on which alarms a run is asked to stop, to checkpoint or to pause. Pure.

    [[act]]
    request = "stop"
    match = {detector = "non_finite", project = "math*"}
    severity = "critical"
    dry_run = false

Without ``dry_run = false`` nothing is asked: the run's events and the alert say what would have been.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from monitor.alerts.book import ALARMS, rank
from monitor.alerts.route_table import Complain, read_match
from monitor.alerts.routing import Facts, matches
from monitor.wire import REQUESTS

REQUESTABLE = tuple(kind for kind in REQUESTS if kind != "resume")
KEYS = ("request", "match", "severity", "dry_run")


@dataclass(frozen=True, slots=True)
class Act:
    """A run is asked for ``request`` when an alarm that matches is raised or rises to at least ``severity``; with ``dry_run`` only in words."""

    request: str
    matcher: Mapping[str, str] = field(default_factory=dict)
    severity: str = "critical"
    dry_run: bool = True


def wanted(facts: Facts, acts: Iterable[Act]) -> dict[str, bool]:
    """What a run is to be asked for because of an alarm, each with whether it is a dry run only; in the order of the rules."""
    found: dict[str, bool] = {}
    for act in acts:
        if rank(facts.severity) >= rank(act.severity) and matches(act.matcher, facts):
            found[act.request] = act.dry_run and found.get(act.request, True)
    return found


def read_act(table: Mapping[str, Any], complain: Complain) -> Act | None:
    """One table, or None after complaining."""
    wrong: list[str] = []

    def say(key: str, sentence: str) -> None:
        wrong.append(key)
        complain(key, sentence)

    for key in table:
        if key not in KEYS:
            say(key, f"an act has no {key!r}; it has: {', '.join(KEYS)}")
    request = table.get("request")
    if request not in REQUESTABLE:
        given = "" if request is None else f", not {request!r}"
        say("request" if "request" in table else "", f'an act needs a request, such as request = "stop": {", ".join(REQUESTABLE)}{given}')
    severity = table.get("severity", "critical")
    if severity not in ALARMS:
        say("severity", f"severity must be {' or '.join(ALARMS)}, not {severity!r}")
    dry_run = table.get("dry_run", True)
    if not isinstance(dry_run, bool):
        say("dry_run", f"dry_run is true or false, not {dry_run!r}")
    match = read_match(table, say)
    return None if wrong else Act(str(request), match, str(severity), bool(dry_run))
