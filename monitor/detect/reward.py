"""Detectors of the reward: is the task being learned, and is it the task that is being learned?"""

from __future__ import annotations

import math

from monitor.detect import cause, stats
from monitor.detect.contract import Detector, Finding, Parameter, State
from monitor.detect.history import Series
from monitor.detect.view import View
from monitor.detect.words import called, latest, upper


def _peak_and_fall(view: View, memory: State) -> tuple[State, Finding | None]:
    """``memory`` is of a fall that is not made good: the level before it (``best``), the lowest 5-row mean since (``low``), what there was to
    lose (``room``) and its severity."""
    outcome = view.outcome
    if outcome is None:
        return memory, None
    if not outcome.fallen:
        return _still_down(view, memory)
    signs = [s.says() for s in view.others()]
    severity = "critical" if outcome.share >= 0.5 and (outcome.rows >= 2 or signs) else memory.get("severity", "warning")
    room = float(f"{(outcome.best - outcome.recent) / outcome.share:.6g}")
    return {**_fallen(view, memory, outcome.best), "room": memory.get("room", room), "severity": severity}, view.finding(
        PEAK_AND_FALL,
        severity,
        outcome.metric,
        outcome.recent,
        title="The task reward is falling from its best level",
        evidence=f"{upper(called(outcome.metric))} of {latest(outcome.rows)} {outcome.recent:.3g}, best level {outcome.best:.3g}: "
        f"{outcome.share:.0%} of it is lost, {outcome.z:.0f} standard errors" + (f"; with it {', '.join(signs)}." if signs else "."),
        why=cause.likely(view),
        baseline=outcome.best,
    )


def _fallen(view: View, memory: State, best: float) -> State:
    """The memory of a fall from ``best`` with the newest row counted."""
    low = min(stats.mean(view.task.x[-5:]), memory.get("low", math.inf))
    return {"best": float(f"{max(best, memory.get('best', best)):.6g}"), "low": float(f"{low:.6g}")}


def _still_down(view: View, memory: State) -> tuple[State, Finding | None]:
    """A fall holds until half of what it cost is won back. The gates alone would let a ruined run pass for well: once the bad rows are many,
    they are what is usual. While half of what there was is gone the fall is critical, however mildly it began."""
    if not memory:
        return {}, None
    kept = {**memory, **_fallen(view, memory, memory["best"])}
    recent = stats.mean(view.task.x[-5:])
    if recent >= (kept["best"] + kept["low"]) / 2:
        return {}, None
    if kept["best"] - recent >= 0.5 * kept.get("room", math.inf):
        kept["severity"] = "critical"
    return kept, view.finding(
        PEAK_AND_FALL,
        kept["severity"],
        view.task.name,
        recent,
        title="The task reward has not come back to its best level",
        evidence=f"Mean of the last 5 rows {recent:.3g}, level before the fall {kept['best']:.3g}, lowest since {kept['low']:.3g}.",
        why=cause.likely(view),
        baseline=kept["best"],
    )


PEAK_AND_FALL = Detector(
    id="peak_and_fall",
    organ="reward",
    title="Peak and fall",
    needs=(("task",),),
    rule="The task reward has lost a third of its best level (half of it for a single row), by several standard errors of the "
    "run's own noise. It holds until half "
    "of what was lost is won back.",
    formula="best 5-row mean - mean of the last k rows > z standard errors and a share of the level, for (k, z, share) any of "
    "(1, 8, .5), (2, 6, .4), (3, 4.5, .33), (8, 4.5, .25), (8, 3.5, .5); within the run's first 8 rows also (3, 3.5, .5) from the mean of its "
    "very first rows, with 1.5 binomial errors of the logged batch size",
    source="noise from successive differences: von Neumann (1941); at least the sampling error of the batch where its size is logged",
    remedy="Go back to the checkpoint nearest the peak, halve the learning rate, raise the KL coefficient.",
    judge=_peak_and_fall,
    parameters=(
        Parameter("errors", 1, "-", "factor on the standard errors of all gates"),
        Parameter("share", 1, "-", "factor on the shares of the level of all gates"),
    ),
)


def unit(series: Series) -> bool:
    return min(*series.first, *series.x) >= 0 and max(*series.first, *series.x) <= 1


def _audit_gap(view: View, memory: State) -> tuple[State, Finding | None]:
    audit, task = view.series("reward.audit.mean"), view.task
    now_t, now_a = view.now(task.name), view.now(audit.name)
    if now_t is None or now_a is None or task.name == audit.name:
        return memory, None
    gap = float(f"{now_t - now_a:.6g}")
    gaps = [*memory.get("gaps", []), gap][-40:]
    after: State = {"gaps": gaps}
    if len(gaps) < 3:
        return after, None
    early = len(gaps) < 5
    usual = gaps[0] if early else stats.median(gaps[:-3])
    least = view.limit(AUDIT_GAP, "gap") * _span(task, audit)
    noise = max(stats.robust_noise(gaps[:-3]), stats.scatter(gaps[:-3])) if len(gaps) > 9 else 0.0
    apart = [g - usual for g in gaps[-3:]]
    # Two rows are enough for a gap twice as wide.
    up = (not early and min(apart) > max(least, 4 * noise)) or min(apart[1:]) > 2 * max(least, 4 * noise)
    down = (not early and max(apart) < -max(least, 4 * noise)) or max(apart[1:]) < -2 * max(least, 4 * noise)
    if not up and not down:
        return after, None
    why = cause.CHEATED if up else cause.VERIFIER
    return after, view.finding(
        AUDIT_GAP,
        "critical" if min(abs(a) for a in apart[1:]) > 2 * least else "warning",
        audit.name,
        now_a,
        title="The trained reward and the independent one part ways",
        evidence=f"{upper(called(task.name))} is {now_t:.3g} and {called(audit.name)} {now_a:.3g}: a gap of {gap:+.3g} where {usual:+.3g} was usual.",
        why=why,
        baseline=usual,
        limit=least,
    )


def _span(*series: Series) -> float:
    """The range of the rewards: 1 where all lie in [0, 1], else what was seen of them."""
    if all(unit(s) for s in series):
        return 1.0
    values = [v for s in series for v in (*s.first, *s.x)]
    return max(values) - min(values)


AUDIT_GAP = Detector(
    id="audit_gap",
    organ="reward",
    title="Audit gap",
    needs=(("reward.audit.mean",), ("task",)),
    rule="The reward that is trained and a verifier that is not trained on disagree by much more than they used to, in either direction.",
    formula="gap - usual gap > max(gap * range, 4 noise units) on three rows, or twice that on two; the usual gap is the "
    "median of the 40 rows before, in the first four rows that of the first",
    source="a held-out verifier is the only scalar that tells a hack from learning: Gao et al., arXiv 2210.10760",
    remedy="Stop; read rollouts that score full on one side and fail on the other; repair the verifier before training on.",
    judge=_audit_gap,
    parameters=(Parameter("gap", 0.2, "fraction", "least change of the gap, as a share of the rewards' range"),),
)


def _eval_gap(view: View, memory: State) -> tuple[State, Finding | None]:
    held_out, task = view.series("eval.task.mean"), view.task
    if view.now(held_out.name) is None or len(held_out.x) < 4:
        return memory, None
    x = list(held_out.x)
    best, recent = max(stats.mean(x[i : i + 2]) for i in range(len(x) - 2)), stats.mean(x[-2:])
    noise = stats.robust_noise(x[:-2]) if len(x) > 4 else stats.noise(x[:-1])
    drop, room = best - recent, _span(held_out)
    trained = [v for at, v in zip(task.at, task.x, strict=True) if at > held_out.at[-3]]
    before = [v for at, v in zip(task.at, task.x, strict=True) if at <= held_out.at[-3]]
    if not trained or not before or drop < max(view.limit(EVAL_GAP, "drop") * room, 4 * noise) or stats.mean(trained) < stats.mean(before[-5:]):
        return memory, None
    return memory, view.finding(
        EVAL_GAP,
        "warning",
        held_out.name,
        recent,
        title="Held-out reward falls while the training reward does not",
        evidence=f"Mean of the last two evaluations {recent:.3g}, best {best:.3g}; training reward {stats.mean(trained):.3g}, "
        f"was {stats.mean(before[-5:]):.3g}.",
        why=cause.OVERFIT,
        baseline=best,
    )


EVAL_GAP = Detector(
    id="eval_gap",
    organ="reward",
    title="Held-out gap",
    needs=(("eval.task.mean",), ("task",)),
    rule="Evaluation on held-out prompts falls from its best while the training reward holds. Evaluations are sparse; at least four are needed.",
    formula="best mean of two evaluations - mean of the last two > max(drop * range, 4 noise units), training reward not lower",
    source="the same test as on the training reward, on a series with its own cadence",
    remedy="Stop at the checkpoint of the best evaluation; widen the training prompts.",
    judge=_eval_gap,
    parameters=(Parameter("drop", 0.1, "fraction", "least fall of the held-out reward, as a share of its range"),),
)
