"""Detectors of the reward: is the task being learned, and is it the task that is being learned?"""

from __future__ import annotations

import math

from monitor.detect import cause, stats
from monitor.detect.contract import Detector, Finding, Parameter, State
from monitor.detect.history import Series
from monitor.detect.view import View
from monitor.detect.words import called, counted, latest, upper


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
    "(1, 8, .5), (2, 6, .4), (3, 4.5, .33), (8, 4.5, .25), (8, 3.5, .5)",
    source="noise from successive differences: von Neumann (1941); at least the sampling error of the batch where its size is logged",
    remedy="Go back to the checkpoint nearest the peak, halve the learning rate, raise the KL coefficient.",
    judge=_peak_and_fall,
    parameters=(
        Parameter("errors", 1, "-", "factor on the standard errors of all gates"),
        Parameter("share", 1, "-", "factor on the shares of the level of all gates"),
    ),
)


def _gain(series: Series, rows: int) -> tuple[float, float, float] | None:
    """``(gain, standard error, start)`` of the newest ``rows`` against the first ones; None while they overlap."""
    if series.n < 2 * rows + 1:
        return None
    start, now = stats.mean(series.first[:rows]), stats.mean(series.x[-rows:])
    return now - start, stats.noise(series.x) * math.sqrt(2 / rows), start


def _unit(series: Series) -> bool:
    return min(*series.first, *series.x) >= 0 and max(*series.first, *series.x) <= 1


def _aux_divergence(view: View, memory: State) -> tuple[State, Finding | None]:
    task, outcome = view.task, view.outcome
    if view.now(task.name) is None or not view.aux or outcome is None:
        return memory, None
    aux = max(view.aux, key=_aux_move) if len(view.aux) > 1 else view.aux[0]
    kind = _diverges(view, task, aux)
    if not kind:
        return {}, None
    run, level_then = memory.get("run", 0) + 1, memory.get("from", float(f"{stats.mean(aux.x[-5:]):.6g}"))
    after: State = {"run": run, "from": level_then}
    # What climbs fast is likely a format that is being learned; the task gets as long to follow.
    fast = _unit(aux) and stats.mean(aux.x[-5:]) - level_then > FAST_SHARE * max(1 - level_then, 0.05)
    needed = 2 if kind == "surge" else view.limit(AUX_DIVERGENCE, "patience") * (2 if fast else 1)
    if outcome.fallen:
        level = "critical"
    elif outcome.dip or run >= needed:
        level = "warning"
    elif run >= 3:
        level = "watch"
    else:
        return after, None
    gain_a, gain_t = _gain(aux, 5), _gain(task, 5)
    a = f"{gain_a[0]:+.3g} since the start" if gain_a else f"now {aux.last:.3g}"
    t = f"{gain_t[0]:+.3g}" if gain_t else f"now {task.last:.3g}"
    signs = [outcome.says()] if outcome.dip else [s.says() for s in view.others()]
    return after, view.finding(
        AUX_DIVERGENCE,
        level,
        aux.name,
        aux.last,
        title="The auxiliary reward is being earned instead of the task",
        evidence=f"{upper(called(aux.name))} {a} while {called(task.name)} {t}, for {counted(run)}"
        + (f"; with it {', '.join(signs)}." if signs else "."),
        why=cause.FARMED,
        baseline=stats.mean(aux.first[:5]),
    )


def _aux_move(series: Series) -> float:
    """How far the newest values lie above the series' own earlier range, in noise units."""
    if len(series.x) < 6:
        return 0.0
    return (stats.mean(series.x[-3:]) - stats.median(series.x[:-3])) / (stats.robust_noise(series.x[:-3]) or 1e-9)


def _diverges(view: View, task: Series, aux: Series) -> str:
    """How ``aux`` gains while ``task`` does not: ``gain``, a share of the known headroom where both lie in [0, 1] and the task shows no trend;
    ``surge``, out of its own range with a falling task or a strained policy; empty when it does not."""
    gain_a, gain_t = _gain(aux, 5), _gain(task, 5)
    if gain_a is not None and gain_t is not None and _unit(aux) and _unit(task):
        head_a, head_t = max(1 - gain_a[2], 0.05), max(1 - gain_t[2], 0.05)
        # A steady rise is certain long before its two ends are far apart; a format that has been learned no longer rises.
        climb = stats.kendall(aux.x[-TREND_ROWS:]) if gain_a[0] > 0 else 0.0
        steady = climb > 2.5
        surely_a = (gain_a[0] - (1.0 if steady else 2.5) * gain_a[1]) / head_a
        at_most_t = (gain_t[0] + 2.5 * gain_t[1]) / head_t
        least = view.limit(AUX_DIVERGENCE, "gain") * (0.4 if steady else 1.0)
        flat = at_most_t < view.limit(AUX_DIVERGENCE, "ratio") * gain_a[0] / head_a
        if surely_a > least and flat and climb > 1.5 and stats.kendall(task.x[-TREND_ROWS:]) < 2:
            return "gain"
    outcome = view.outcome
    if outcome is None or outcome.rising:
        return ""
    joined = outcome.dip or view.others("kl")
    return "surge" if joined and _aux_move(aux) > 5 and cause.aux_surge(view) is not None else ""


FAST_SHARE = 0.2
"""Share of the auxiliary headroom gained since the divergence began from which the climb is fast."""
TREND_ROWS = 12
"""Newest rows whose trend says whether a reward is on its way."""

AUX_DIVERGENCE = Detector(
    id="aux_divergence",
    organ="reward",
    title="Auxiliary and task reward diverge",
    needs=(("task",), ("aux",)),
    rule="An auxiliary reward gains while the task gains far less of its headroom, or surges while the task falls.",
    formula="(dA - 2.5 SE) / H_A > gain and (dT + 2.5 SE) / H_T < ratio * dA / H_A for `patience` rows, H = 1 - start, rewards in [0, 1]; "
    "0.4 of the gain and 1 SE for a steady rise (Mann-Kendall z > 2.5 over 12 rows); none once the auxiliary reward stops rising (z < 1.5) or "
    "while the task trends up (z > 2). Or aux 5 noise units up, out of its range, and the task down or another group strained, on two rows",
    source="headroom-normalised gain ratio; persistence because format is commonly learned before accuracy",
    remedy="Lower the weight of the auxiliary reward or cap it per sample, add a KL penalty, read the rollouts that earn most of it.",
    judge=_aux_divergence,
    parameters=(
        Parameter("gain", 0.05, "fraction", "least share of the auxiliary headroom that was gained"),
        Parameter("ratio", 0.25, "-", "task gain over auxiliary gain, both per headroom, under which they diverge"),
        Parameter("patience", 5, "rows", "rows of divergence before a warning while the task has not fallen; twice as many while it climbs fast"),
    ),
)


def _audit_gap(view: View, memory: State) -> tuple[State, Finding | None]:
    audit, task = view.series("reward.audit.mean"), view.task
    now_t, now_a = view.now(task.name), view.now(audit.name)
    if now_t is None or now_a is None or task.name == audit.name:
        return memory, None
    gap = float(f"{now_t - now_a:.6g}")
    gaps = [*memory.get("gaps", []), gap][-40:]
    after: State = {"gaps": gaps}
    if len(gaps) < 5:
        return after, None
    usual = stats.median(gaps[:-3])
    least = view.limit(AUDIT_GAP, "gap") * _span(task, audit)
    noise = max(stats.robust_noise(gaps[:-3]), stats.scatter(gaps[:-3])) if len(gaps) > 9 else 0.0
    apart = [g - usual for g in gaps[-3:]]
    # Two rows are enough for a gap twice as wide.
    up = min(apart) > max(least, 4 * noise) or min(apart[1:]) > 2 * max(least, 4 * noise)
    down = max(apart) < -max(least, 4 * noise) or max(apart[1:]) < -2 * max(least, 4 * noise)
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
    if all(_unit(s) for s in series):
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
    "median of the 40 rows before",
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


def _dead_reward(view: View, memory: State) -> tuple[State, Finding | None]:
    rows = int(view.limit(DEAD_REWARD, "rows"))
    for name in sorted(view.row.values):
        if not name.startswith(("reward.fn.", "reward.aux.")) or view.now(name) is None:
            continue
        series = view.series(name)
        if series.n >= rows and min(*series.first, *series.x) == max(*series.first, *series.x):
            return memory, view.finding(
                DEAD_REWARD,
                "information",
                name,
                series.last,
                title="A reward function never changes",
                evidence=f"{upper(called(name))} was {series.last:.3g} on all {series.n:,} rows.",
                why=cause.DEAD_CHECK,
            )
    return memory, None


DEAD_REWARD = Detector(
    id="dead_reward",
    organ="reward",
    title="Dead reward function",
    needs=(("aux", "reward.aux.mean"),),
    rule="One reward function has had the same value on every row of the run.",
    formula="min = max over all rows, from `rows` rows on",
    source="a format pattern that never matches gives no gradient and no error",
    remedy="Run the function on three rollouts by hand.",
    judge=_dead_reward,
    parameters=(Parameter("rows", 20, "rows", "rows before a constant reward is called dead"),),
)
