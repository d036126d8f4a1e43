"""Detectors of the auxiliary rewards: what is earned instead of the task, what drives the updates, what never changes."""

from __future__ import annotations

import math

from monitor.detect import cause, stats
from monitor.detect.contract import Detector, Finding, Parameter, State
from monitor.detect.history import Series
from monitor.detect.reward import unit
from monitor.detect.strain import GAP
from monitor.detect.view import View
from monitor.detect.words import called, counted, latest, upper


def _gain(series: Series, rows: int) -> tuple[float, float, float] | None:
    """``(gain, standard error, start)`` of the newest ``rows`` against the first ones; None while they overlap."""
    if series.n < 2 * rows + 1:
        return None
    start, now = stats.mean(series.first[:rows]), stats.mean(series.x[-rows:])
    return now - start, stats.noise(series.x) * math.sqrt(2 / rows), start


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
    fast = unit(aux) and stats.mean(aux.x[-5:]) - level_then > FAST_SHARE * max(1 - level_then, 0.05)
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


def _mover(view: View) -> str:
    """Which of several auxiliary rewards has risen most, as a sentence; empty when there is one, or none has risen."""
    rises: dict[str, float] = {}
    for name, value in view.row.values.items():
        if name.startswith("reward.aux.") and name.endswith(".mean") and name != "reward.aux.mean" and math.isfinite(value):
            earlier = view.series(name).x[:-3]
            rises[name] = value - (stats.median(earlier) if earlier else 0.0)
    if len(rises) < 2 or rises[most := max(rises, key=rises.__getitem__)] <= 0:
        return ""
    value = view.row.values[most]
    return f" What rose most is {called(most)}, from {value - rises[most]:.3g} to {value:.3g}."


def _diverges(view: View, task: Series, aux: Series) -> str:
    """How ``aux`` gains while ``task`` does not: ``gain``, a share of the known headroom where both lie in [0, 1] and the task shows no trend;
    ``surge``, out of its own range with a falling task or a strained policy; empty when it does not."""
    gain_a, gain_t = _gain(aux, 5), _gain(task, 5)
    if gain_a is not None and gain_t is not None and unit(aux) and unit(task):
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


def _aux_share(view: View, memory: State) -> tuple[State, Finding | None]:
    share, spread = view.series("reward.aux.share"), view.series("group.reward_std")
    if view.now(share.name) is None or len(share.x) < 6 or len(spread.x) < 6:
        return memory, None
    x, limit = share.x, view.limit(AUX_SHARE, "share")
    recent = stats.mean(x[-3:])
    usual, signal = stats.median(x[: -min(GAP, len(x) // 2)]), stats.median(spread.x[: -min(GAP, len(spread.x) // 2)])
    # A task that is solved or dead tells no samples apart: then the share rises because the signal has gone.
    alive = stats.mean(spread.x[-3:]) >= view.limit(AUX_SHARE, "alive") * signal
    if recent < limit or min(x[-2:]) < 0.8 * limit or usual > view.limit(AUX_SHARE, "usual") or not alive:
        return memory, None
    outcome = view.outcome
    if outcome is not None and outcome.rising:
        level = "watch"
    else:
        level = "critical" if outcome is not None and outcome.fallen else "warning"
    return memory, view.finding(
        AUX_SHARE,
        level,
        share.name,
        recent,
        title="An auxiliary reward has taken over the learning signal",
        evidence=f"{upper(called(share.name))} is {recent:.0%} over {latest(3)}, {usual:.0%} was usual: samples of a group are told apart by it "
        f"and not by the task, which stands at {view.task.last:.3g}.{_mover(view)}",
        why=cause.FARMED,
        baseline=usual,
        limit=limit,
    )


AUX_SHARE = Detector(
    id="aux_share",
    organ="reward",
    title="Auxiliary reward drives the updates",
    needs=(("reward.aux.share",), ("group.reward_std",)),
    rule="Most of what tells the samples of a group apart, and so most of the gradient, comes from the auxiliary rewards, where the task used to "
    "decide; the spread within groups is as large as before, so it is not the task that fell silent.",
    formula="mean of the newest three reward.aux.share >= share, the last two >= .8 share, median before <= usual, and group.reward_std of three "
    "rows >= alive * its median before; a watch while the task rises",
    source="advantages are differences within a group, so the within-group covariance with the total says which reward the update follows",
    remedy="Lower the weight of the auxiliary reward or cap it per sample before the task pays for it; read the rollouts that earn most of it.",
    judge=_aux_share,
    parameters=(
        Parameter("share", 0.6, "fraction", "share of the learning signal from which an auxiliary reward drives the updates"),
        Parameter("usual", 0.4, "fraction", "largest usual share that the rise must have started from"),
        Parameter("alive", 0.5, "fraction", "least spread within groups, as a share of the usual one"),
    ),
)


def _dead_reward(view: View, memory: State) -> tuple[State, Finding | None]:
    rows = int(view.limit(DEAD_REWARD, "rows"))
    for name in sorted(view.row.values):
        if name == "reward.aux.share" or not name.startswith(("reward.fn.", "reward.aux.")) or view.now(name) is None:
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
