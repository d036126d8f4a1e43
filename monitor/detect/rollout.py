"""Detectors of the rollouts: length, truncation, repetition."""

from __future__ import annotations

from monitor.detect import cause, stats, strain
from monitor.detect.contract import Detector, Finding, Parameter, State
from monitor.detect.rules import from_strain, support
from monitor.detect.view import View


def _length_runaway(view: View, memory: State) -> tuple[State, Finding | None]:
    return memory, from_strain(view, LENGTH_RUNAWAY, "Answers are growing out of their range", ("longer",))


LENGTH_RUNAWAY = Detector(
    id="length_runaway",
    organ="rollout",
    title="Length runs away",
    needs=(("len.completion.mean", "len.truncated_frac"),),
    rule="Answers grow to 1.4 times their own level or 15 points more of them are cut, the task does not rise, and something else moves too.",
    formula="ln length > baseline + ln 1.4, or truncated > baseline + .15, by 4 noise units, with a second group; quiet while the task rises",
    source="length bias of the sequence-mean loss: Liu et al., arXiv 2503.20783",
    remedy="Shape overlong answers, mask truncated ones, or raise the cap if the answers are worth it.",
    judge=_length_runaway,
    parameters=strain.parameters("length_runaway"),
)


def _length_collapse(view: View, memory: State) -> tuple[State, Finding | None]:
    return memory, from_strain(view, LENGTH_COLLAPSE, "Answers are collapsing to a fraction of their length", ("shorter",))


LENGTH_COLLAPSE = Detector(
    id="length_collapse",
    organ="rollout",
    title="Length collapses",
    needs=(("len.completion.mean",),),
    rule="Answers shrink to two thirds of their own level while the task does not rise, and something else moves with it.",
    formula="ln length < baseline - ln 1.5 by 4 noise units, with a second group; quiet while the task rises",
    source="a shorter answer with the same accuracy is welcome, hence the second gate",
    remedy="Weaken the length penalty or format reward; check the judge and the length normaliser.",
    judge=_length_collapse,
    parameters=strain.parameters("length_collapse"),
)


def _truncation(view: View, memory: State) -> tuple[State, Finding | None]:
    now, cut = view.now("len.truncated_frac"), view.series("len.truncated_frac")
    if now is None or cut.n < 2:
        return memory, None
    level = view.limit(TRUNCATION, "share")
    recent = cut.x[-3:]
    # In the first rows only a large batch tells a jump from noise.
    large = (view.now("batch.sequences") or 0.0) >= 32
    before = stats.median(cut.x[: -min(8, max(3 if large else 1, len(cut.x) // 3))])
    told = len(cut.x) >= 6 or large
    beyond_noise = told and now - before >= 4 * stats.robust_noise(cut.x[:-3])
    jumped = len([x for x in recent if x >= level]) >= 2 and now >= level and before <= level - 0.3 and beyond_noise
    full = len([x for x in cut.x[-10:] if x >= 0.8])
    always = full >= 7 and full >= 0.8 * len(cut.x[-10:]) and now >= 0.8
    outcome = view.outcome
    rising = outcome is not None and outcome.rising
    if not (jumped or always) or rising:
        return memory, None
    if jumped and len(cut.x) < 8 and view.task.n and view.task.last < 0.5 * max(view.task.first):
        why = cause.LARGE_UPDATE
    else:
        why = cause.likely(view) if jumped and support(view, "longer") else cause.LENGTH_CAP
    fallen = outcome is not None and outcome.fallen
    evidence = (
        f"{now:.0%} of the answers are cut at the limit; it was {before:.0%}."
        if jumped
        else f"At least 80 % of the answers are cut on {full} of the last {len(cut.x[-10:])} rows, {now:.0%} on this one."
    )
    return memory, view.finding(
        TRUNCATION,
        "critical" if fallen else "warning",
        "len.truncated_frac",
        now,
        title="Most answers are cut at the length limit",
        evidence=evidence,
        why=why,
        baseline=before,
        limit=level if jumped else 0.8,
    )


TRUNCATION = Detector(
    id="truncation",
    organ="rollout",
    title="Truncation",
    needs=(("len.truncated_frac",),),
    rule="Half of the answers are cut where far fewer were, or nearly all of them on four of five rows, while the task does not rise.",
    formula="truncated >= share on 2 of 3 rows and 30 points above its baseline; or >= .8 on four fifths of the newest 7 to 10 rows; "
    "quiet while the task rises",
    source="truncated answers are scored as failures and teach brevity at random: DAPO, arXiv 2503.14476, section 3.4",
    remedy="Raise the cap, shape overlong answers, or mask truncated ones from the loss.",
    judge=_truncation,
    parameters=(Parameter("share", 0.5, "fraction", "share of cut answers that is too much when it is new"),),
)


def _repetition(view: View, memory: State) -> tuple[State, Finding | None]:
    return memory, from_strain(view, REPETITION, "Answers repeat themselves more and more", ("repetition",))


REPETITION = Detector(
    id="repetition",
    organ="rollout",
    title="Repetition",
    needs=(("rep.adjacent_frac", "rep.ngram_frac", "rep.top1_share"),),
    rule="Immediate repeats, repeated 4-grams or the commonest token's share grow out of their range, and something else moves with it.",
    formula="adjacent > baseline + .04, 4-grams > + .10 or top-1 share > + .08, by 4 noise units, with a second group",
    source="degeneration into loops: Holtzman et al., arXiv 1904.09751",
    remedy="Stop and roll back; truncate loops while sampling; remove what rewards length or repetition.",
    judge=_repetition,
    parameters=strain.parameters("repetition"),
)
