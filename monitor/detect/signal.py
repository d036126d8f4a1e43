"""Detectors of the learning signal: do the groups of a batch still carry a gradient?"""

from __future__ import annotations

from monitor.detect.contract import Detector, Finding, Parameter, State
from monitor.detect.view import View


def _no_signal(view: View, memory: State) -> tuple[State, Finding | None]:
    nonzero = view.series("adv.nonzero_frac")
    if view.context.signal != "reward" or view.now("adv.nonzero_frac") is None:
        return memory, None
    recent = list(nonzero.x[-5:])
    floor = view.limit(NO_SIGNAL, "floor")
    dead = [x for x in nonzero.x[-10:] if x <= 1e-3]
    low = [x for x in recent if x < floor]
    if len(low) < 3 or recent[-1] >= floor:
        return memory, None
    solved = view.now("group.all_pass_frac") or 0.0
    if solved >= view.limit(NO_SIGNAL, "solved"):
        return memory, view.finding(
            NO_SIGNAL,
            "information",
            "adv.nonzero_frac",
            recent[-1],
            title="The prompts are solved: nearly every group passes",
            evidence=f"{solved:.0%} of the groups pass completely; {recent[-1]:.0%} of the samples carry an advantage.",
            cause="the dataset is solved",
            advice="Move to harder prompts, or stop here.",
            limit=floor,
        )
    return memory, view.finding(
        NO_SIGNAL,
        "critical" if len(dead) >= 10 else "warning",
        "adv.nonzero_frac",
        recent[-1],
        title="Almost no sample carries a learning signal",
        evidence=f"Only {recent[-1]:.1%} of the samples have an advantage, below {floor:.0%} on {len(low)} of the last {len(recent)} rows.",
        cause="all samples of a group score alike: the verifier fails, answers are truncated, or the prompts are too hard",
        refutation="rollouts of one group differ in quality when read, and the verifier scores them apart",
        limit=floor,
    )


NO_SIGNAL = Detector(
    id="no_signal",
    organ="signal",
    title="No learning signal",
    needs=(("adv.nonzero_frac", "group.zero_var_frac", "group.reward_std", "reward.total.std"),),
    rule="Too few samples have an advantage, so the update is nearly empty.",
    formula="adv.nonzero_frac < floor on 3 of 5 rows; critical when zero on 10 rows",
    source="DAPO, arXiv 2503.14476, section 3.2",
    remedy="Read the rollouts of one group; fix the verifier, raise the length cap, ease the prompts or sample dynamically.",
    judge=_no_signal,
    parameters=(
        Parameter("floor", 0.2, "fraction", "least share of samples with an advantage"),
        Parameter("solved", 0.8, "fraction", "share of groups that all pass from which the prompts count as solved"),
    ),
)
