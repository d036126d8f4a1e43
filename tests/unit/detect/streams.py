"""Walking a list of rows through the fold, as the worker and ``vitals diagnose`` do."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from monitor.detect import fold
from monitor.detect.contract import Context, Finding, Row

ALARMS = ("warning", "critical")


def walk(
    rows: Iterable[Mapping[str, float]], context: Context = Context(), *, through_json: bool = False, steps: Sequence[int] | None = None
) -> list[list[Finding]]:
    """The findings of each row; ``through_json`` sends the state through its stored form after every row."""
    state, found = fold.initial(), []
    for i, values in enumerate(rows):
        state, findings = fold.observe(state, Row(i, steps[i] if steps else i, values), context)
        if through_json:
            state = json.loads(fold.dump(state))
        found.append(findings)
    return found


def alarms(found: list[list[Finding]]) -> list[tuple[int, Finding]]:
    return [(i, f) for i, findings in enumerate(found) for f in findings if f.severity in ALARMS]


def first(found: list[list[Finding]], detector: str) -> tuple[int, Finding] | None:
    """The first alarm of ``detector``, or None."""
    return next(((i, f) for i, f in alarms(found) if f.detector == detector), None)
