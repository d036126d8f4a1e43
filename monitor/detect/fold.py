"""All detectors over the rows of one run: one state, one pass.

``state`` is plain JSON: the bounded ``history`` of each judged series, the ``bands`` and ``bits`` of the strain channels, the metrics by which
groups were ``strained``, the ``outcome`` of the task reward, the newest ``steps`` and each detector's own ``memory``. ``observe`` never changes
its arguments.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from monitor.detect import history, outcome, stats, strain
from monitor.detect.cascade import decorated
from monitor.detect.contract import Context, Finding, Row, State
from monitor.detect.organs import REWARD_ORGANS, SHOWN, cannot_judge, lacking, organs
from monitor.detect.registry import DETECTORS
from monitor.detect.reward import PEAK_AND_FALL
from monitor.detect.view import TASK_FALLBACKS, View

__all__ = ["cannot_judge", "dump", "initial", "lacking", "new_regime", "observe", "organs"]

WATCHED = frozenset(
    (
        *(name for detector in DETECTORS for choice in detector.needs for name in choice),
        *(channel.metric for channel in strain.CHANNELS),
        *(name for names in SHOWN.values() for name in names),
        *TASK_FALLBACKS,
        "opt.lr",
        "len.completion.p50",
        "group.all_pass_frac",
    )
)
"""Every exact name whose history some rule or sentence reads."""


def initial() -> State:
    """The state of a run before its first row."""
    return {"rows": 0, "history": {}, "steps": [], "bands": {}, "bits": {}, "strained": {}, "outcome": {}, "memory": {}}


def new_regime(state: State) -> State:
    """The state after a deliberate change: length or curriculum stage, reward weights, batch size, temperature.

    Baselines and trends start anew, because the old ones say nothing of the new setting; rules that need none judge on.
    """
    return {**initial(), "rows": state["rows"], "steps": state["steps"]}


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
    kept = history.extend(state["history"], row.index, row.values, WATCHED.union((context.task, *context.aux)))
    series = _Lookup(kept)
    steps = [*state["steps"][1 - history.WINDOW :], row.step]
    view = View(row, context, series, steps)
    bands, view.strains, judged = strain.measure(series, row.values, state["bands"], row.index, context.limits)
    view.bits = bits = strain.remember(state["bits"], view.strains, judged)
    view.strained = strained = strain.named(state["strained"], view.strains)
    seen = state["outcome"]
    if view.now(view.task.name) is not None:
        spread = stats.median(view.first_logged("group.reward_std", "reward.total.std").x)
        sampling = outcome.Sampling(view.now("batch.sequences"), None if math.isnan(spread) else spread)
        strictness = outcome.Strictness(view.limit(PEAK_AND_FALL, "errors"), view.limit(PEAK_AND_FALL, "share"))
        seen, view.outcome = outcome.assess(view.task, seen, sampling, strictness)
    memory: dict[str, Any] = dict(state["memory"])
    findings: list[Finding] = []
    for detector in DETECTORS:
        if context.signal != "reward" and detector.organ in REWARD_ORGANS and detector is not PEAK_AND_FALL:
            continue
        memory[detector.id], finding = detector.judge(view, memory.get(detector.id, {}))
        if not memory[detector.id]:
            del memory[detector.id]
        if finding is not None:
            findings.append(finding)
    after = {
        "rows": state["rows"] + 1,
        "history": kept,
        "steps": steps,
        "bands": bands,
        "bits": bits,
        "strained": strained,
        "outcome": seen,
        "memory": memory,
    }
    return after, decorated(view, findings)


def dump(state: State) -> str:
    """``state`` as JSON text."""
    return json.dumps(state, separators=(",", ":"), allow_nan=False)
