"""When a finding's condition began and what moved with it, in order: estimated once a finding holds."""

from __future__ import annotations

import dataclasses

from monitor.detect import cause, stats
from monitor.detect.contract import Finding
from monitor.detect.strain import onset
from monitor.detect.view import View

LOOK_BACK = 40
"""Rows in which a change point is sought."""
INSTANT = ("non_finite", "huge_advantage", "dead_reward")
"""Detectors whose condition concerns this row or the whole run."""


def ages(view: View) -> dict[str, int]:
    """Metric -> how many rows ago it left its range, for everything that is out of range now or was within the last three rows."""
    found: dict[str, int] = {}
    for group, bits in view.bits.items():
        age = onset(bits)
        if age < 0:
            continue
        found[view.strained[group]] = age
    if view.outcome is not None and view.outcome.dip:
        found[view.task.name] = _fall(view, view.outcome.best_at)
    surging = cause.aux_surge(view)
    if surging is not None:
        found[surging] = _change(view, surging)
    return found


def _change(view: View, name: str) -> int:
    """Rows since the change point of the newest rows of ``name``; 0 when it is too short to tell."""
    series = view.series(name)
    x, at = series.x[-LOOK_BACK:], series.at[-LOOK_BACK:]
    return view.row.index - at[stats.change_point(x)] if len(x) >= 4 else 0


def _fall(view: View, best_at: int) -> int:
    """Rows since the task reward began to fall: the change point of what came after its best row, so that the rise before it is no candidate."""
    series = view.series(view.task.name)
    start = max(0, len(series.x) - LOOK_BACK)
    after = [(value, at) for value, at in zip(series.x[start:], series.at[start:], strict=True) if at >= best_at]
    if len(after) < 2:
        return 0
    first = stats.change_point([value for value, _ in after]) or 1
    return view.row.index - after[first][1]


def decorated(view: View, findings: list[Finding]) -> list[Finding]:
    """``findings`` with onset and cascade: first mover first, the finding's own metric left out."""
    if not findings:
        return findings
    moved = sorted(ages(view).items(), key=lambda item: (-item[1], item[0]))
    known = dict(moved)
    after = []
    for finding in findings:
        if finding.detector in INSTANT:
            age = 0
        else:
            age = known.get(finding.metric, -1)
            if age < 0 and finding.metric == view.task.name and view.outcome is not None:
                age = _fall(view, view.outcome.best_at)
            elif age < 0:
                age = _change(view, finding.metric)
        others = tuple(name for name, _ in moved if name != finding.metric)
        after.append(dataclasses.replace(finding, since_step=view.step_of(age), moved=others))
    return after
