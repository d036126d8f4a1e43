"""All detectors over the rows of one run: one state, one pass.

``state`` is plain JSON: the bounded ``history`` of each series, the ``bands`` and ``bits`` of the strain channels, the ``outcome`` of the task
reward, the newest ``steps`` and each detector's own ``memory``. ``observe`` never changes its arguments.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from monitor.detect import history, outcome, stats, strain
from monitor.detect.contract import Context, Detector, Finding, OrganView, Row, State
from monitor.detect.registry import DETECTORS
from monitor.detect.view import TASK_FALLBACKS, View
from monitor.metrics import ORGANS


def initial() -> State:
    """The state of a run before its first row."""
    return {"rows": 0, "history": {}, "steps": [], "bands": {}, "bits": {}, "outcome": {}, "memory": {}}


class _Lookup(dict[str, history.Series]):
    """Series by name, made when first asked for."""

    def __init__(self, kept: Mapping[str, Any]) -> None:
        super().__init__()
        self._kept = kept

    def __missing__(self, name: str) -> history.Series:
        found = self[name] = history.series(self._kept, name)
        return found


def observe(state: State, row: Row, context: Context) -> tuple[State, list[Finding]]:
    """The next state and every finding that holds on ``row``, in the registry's order."""
    extra = frozenset((context.task, *context.aux))
    kept = history.extend(state["history"], row.index, row.values, extra)
    view = View(row, context, kept, [*state["steps"][1 - history.WINDOW :], row.step])
    bands, view.strains, judged = strain.measure(_Lookup(kept), row.values, state["bands"], row.index)
    view.bits = bits = strain.remember(state["bits"], view.strains, judged)
    seen = dict(state["outcome"])
    if view.now(view.task.name) is not None:
        spread = stats.median(view.first_logged("group.reward_std", "reward.total.std").x)
        sampling = outcome.Sampling(view.now("batch.sequences"), None if math.isnan(spread) else spread)
        seen, view.outcome = outcome.assess(view.task, seen, sampling)
    memory: dict[str, Any] = dict(state["memory"])
    findings: list[Finding] = []
    for detector in DETECTORS:
        after, finding = detector.judge(view, memory.get(detector.id, {}))
        if after:
            memory[detector.id] = after
        if finding is not None:
            findings.append(finding)
    after_row = {
        "rows": state["rows"] + 1,
        "history": kept,
        "steps": [*state["steps"][1 - history.WINDOW :], row.step],
        "bands": bands,
        "bits": bits,
        "outcome": seen,
        "memory": memory,
    }
    return after_row, findings


def _missing(detector: Detector, state: State, context: Context) -> tuple[str, ...]:
    """The first need of ``detector`` that the run has not met so far, as metric names; empty when it can judge."""
    names = {"task": (context.task, *TASK_FALLBACKS), "aux": context.aux}
    for choice in detector.needs:
        wanted = [name for entry in choice for name in names.get(entry, (entry,))]
        if not any(name in state["history"] for name in wanted):
            return tuple(choice)
    return ()


def cannot_judge(state: State, context: Context) -> list[str]:
    """One sentence per detector that lacks an input: "Entropy low: cannot judge, no entropy.mean logged"."""
    sentences = []
    for detector in DETECTORS:
        if missing := _missing(detector, state, context):
            sentences.append(f"{detector.title}: cannot judge, no {' or '.join(missing)} logged")
    return sentences


def organs(state: State, context: Context) -> dict[str, OrganView]:
    """Each organ as it looks apart from alarms. Reasons name the detectors that cannot judge."""
    views: dict[str, OrganView] = {}
    for organ in ORGANS:
        own = [d for d in DETECTORS if d.organ == organ]
        if not own:
            continue
        blind = [d for d in own if _missing(d, state, context)]
        reasons = tuple(f"{d.title}: no {' or '.join(_missing(d, state, context))} logged" for d in blind)
        if len(blind) == len(own):
            views[organ] = OrganView("cannot judge", f"Nothing that {organ} is judged by was logged.", reasons)
        else:
            views[organ] = OrganView("healthy", f"{len(own) - len(blind)} of {len(own)} checks can judge.", reasons)
    return views


def dump(state: State) -> str:
    """``state`` as JSON text."""
    return json.dumps(state, separators=(",", ":"), allow_nan=False)
