"""How each part of a run looks apart from its alarms, and which detectors lack an input."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from monitor.detect import history
from monitor.detect.contract import Context, Detector, OrganView, State
from monitor.detect.registry import DETECTORS
from monitor.detect.view import TASK_FALLBACKS
from monitor.detect.words import called
from monitor.metrics import ORGANS

REWARD_ORGANS = ("reward", "signal")
"""Organs that say nothing of a run that declares another signal than its reward, but for a fall of the task reward."""
SOLVED = 0.95
"""Standing of the task reward from which a run counts as solved, for rewards in [0, 1]."""
SHOWN = {
    "reward": ("task", "aux", "reward.audit.mean"),
    "signal": ("adv.nonzero_frac", "group.zero_var_frac", "group.all_pass_frac", "group.all_fail_frac"),
    "policy": ("entropy.mean", "kl_ref.k3", "iw.ess", "iw.mean", "mismatch.kl.k3"),
    "optimizer": ("opt.grad_norm", "opt.loss", "opt.lr"),
    "rollout": ("len.completion.mean", "len.truncated_frac", "rep.adjacent_frac"),
    "pace": ("stale.mean", "perf.step_time_s"),
    "behaviour": ("env.error_frac", "env.tool_fail_frac"),
}
"""What an organ's sentence quotes, as far as logged; at most three."""
NAMED = 2
"""Metrics that a sentence names as missing; the reasons have all of them."""


def _names(entry: str, context: Context) -> tuple[str, ...]:
    """The series that an entry of a detector's needs stands for."""
    if entry == "task":
        return (context.task, *TASK_FALLBACKS)
    return context.aux if entry == "aux" else (entry,)


def missing(detector: Detector, state: State, context: Context) -> tuple[str, ...]:
    """The first need of ``detector`` that the run has not met so far, as metric names; empty when it can judge."""
    for choice in detector.needs:
        wanted = [name for entry in choice for name in _names(entry, context)]
        if not any(name in state["history"] for name in wanted):
            return tuple(dict.fromkeys(name for entry in choice for name in _names(entry, context)[:1]))
    return ()


def lacking(state: State, context: Context) -> dict[str, tuple[str, ...]]:
    """The titles of the detectors that lack an input, each with the metrics of which one must be logged."""
    return {detector.title: needed for detector in DETECTORS if (needed := missing(detector, state, context))}


def cannot_judge(state: State, context: Context) -> list[str]:
    """A sentence for each of :func:`lacking`, "Entropy collapses: cannot judge, no entropy.mean logged", then one for a signal that is no reward."""
    sentences = [f"{title}: cannot judge, no {' or '.join(needed)} logged" for title, needed in lacking(state, context).items()]
    if context.signal != "reward":
        sentences.append(f"Reward and signal: judged for a fall alone, this run declares {context.signal} as what drives learning")
    return sentences


def _quoted(organ: str, state: State, context: Context) -> str:
    values: list[str] = []
    for entry in SHOWN[organ]:
        for name in _names(entry, context):
            series = history.series(state["history"], name)
            if series.n and len(values) < 3:
                values.append(f"{called(name)} {series.last:.3g}")
                break
    return ", ".join(values)


def _solved(organ: str, outcome: dict[str, Any]) -> bool:
    return organ in REWARD_ORGANS and outcome.get("standing", 0.0) >= SOLVED and outcome.get("low", -1) >= 0 and outcome.get("high", 2) <= 1


def _needing(blind: Collection[tuple[str, ...]]) -> str:
    """What an organ without any judge would need; it may well have charts, of metrics that no rule reads."""
    names = list(dict.fromkeys(name for needed in blind for name in needed))
    told = " or ".join(names[:NAMED]) + (" or others" if len(names) > NAMED else "")
    return f"Judging needs {told}, not logged so far."


def organs(state: State, context: Context) -> dict[str, OrganView]:
    """Each organ that has detectors, in the catalogue's order. Reasons name the detectors that cannot judge."""
    views: dict[str, OrganView] = {}
    for organ in ORGANS:
        own = [d for d in DETECTORS if d.organ == organ]
        if not own:
            continue
        blind = {d.title: needed for d in own if (needed := missing(d, state, context))}
        reasons = tuple(f"{title}: no {' or '.join(needed)} logged" for title, needed in blind.items())
        quoted = _quoted(organ, state, context)
        if len(blind) == len(own):
            views[organ] = OrganView("cannot judge", _needing(blind.values()), reasons)
        elif organ in REWARD_ORGANS and context.signal != "reward":
            views[organ] = OrganView("cannot judge", f"This run learns from {context.signal}, not from a reward.", reasons)
        elif _solved(organ, state["outcome"]):
            views[organ] = OrganView("solved", f"The prompts are solved: {quoted}.", reasons)
        else:
            views[organ] = OrganView("healthy", f"In range: {quoted}." if quoted else "In range.", reasons)
    return views
