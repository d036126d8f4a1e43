"""Detectors of the learning signal: do the groups of a batch still carry a gradient?"""

from __future__ import annotations

from monitor.detect import cause, stats
from monitor.detect.contract import Detector, Finding, Parameter, State
from monitor.detect.view import View
from monitor.detect.words import called

CHOICES = ("adv.nonzero_frac", "group.mixed_frac", "group.zero_var_frac", "group.reward_std", "reward.total.std")
"""Where the share of samples with a signal is read from, best first."""
WINDOW = {True: 12, False: 8}
"""Rows judged together: with a series of ``CHOICES``, and where there is nothing but the reward."""
KNOWN_ROWS = 10
"""Rows from which what was usual is known: a hard task often begins with little signal, and its first rows are no measure."""
CHANCE = 0.005
"""Probability under the run's own earlier rate of empty rows below which their accumulation is no chance."""


def signal_series(view: View) -> tuple[str, list[float]]:
    """``(metric, shares)``: per row the share of the batch that carries a signal; 0 or 1 where only a spread was logged."""
    found = view.first_logged(*CHOICES)
    x = list(found.x)
    if found.name == "group.zero_var_frac":
        return found.name, [1 - v for v in x]
    if found.name in ("group.reward_std", "reward.total.std"):
        return found.name, [float(v > 1e-6) for v in x]
    return found.name, x


def _solved(view: View, level: float) -> bool:
    """Whether few contrasts mean that the prompts are solved: all pass, or a task reward in [0, 1] that is nearly full."""
    if view.now("group.all_pass_frac") is not None:
        return stats.mean(view.series("group.all_pass_frac").x[-5:]) >= 0.5 * level
    return view.outcome is not None and view.outcome.solved(level, 0.3)


def _starved(view: View, metric: str, shares: list[float], low: list[bool], floor: float) -> bool:
    """Whether rows without a signal (``low``, the newest of them) are a condition: newly, or with a narrowed policy, on most of the last five
    rows; or lasting."""
    graded = metric in CHOICES[:3]
    if graded and len(shares) >= 10 and low[-1] and sum(low[-5:]) >= 4:
        known = len(shares) >= KNOWN_ROWS + 8
        if (known and stats.median(shares[:-8]) >= 2 * floor) or _narrowed(view):
            return True
    if len(low) < WINDOW[metric in CHOICES] or sum(low) < 0.8 * len(low) or not _no_better(view):
        return False
    earlier = shares[: -len(low)]
    if graded or len(earlier) < 8:
        return True
    # One group per row: empty rows come in runs by chance as well.
    usual = (sum(x < floor for x in earlier) + 1) / (len(earlier) + 2)
    return usual > 0.8 or stats.binomial_tail(sum(low), len(low), usual) < CHANCE


def _no_signal(view: View, memory: State) -> tuple[State, Finding | None]:
    metric, shares = signal_series(view)
    if not shares:
        metric, shares = _lowest_reward(view)
    if view.now(metric) is None or not shares:
        return memory, None
    floor = view.limit(NO_SIGNAL, "floor")
    window = shares[-WINDOW[metric in CHOICES] :]
    low = [x < floor for x in window]
    if not _starved(view, metric, shares, low, floor):
        return memory, None
    solved = _solved(view, view.limit(NO_SIGNAL, "solved"))
    share = stats.mean(window[-5:])
    dead = len(shares) >= 10 and not any(shares[-10:])
    evidence = (
        f"On {sum(low)} of the last {len(window)} rows less than {floor:.0%} of the batch carries a signal, read from {called(metric)}; "
        f"mean of the last five {share:.1%}."
    )
    if solved:
        return memory, view.finding(
            NO_SIGNAL,
            "information",
            metric,
            share,
            title="The prompts are solved: hardly a group is left with both outcomes",
            evidence=evidence,
            why=cause.SOLVED,
            limit=floor,
        )
    why = _triage(view)
    return memory, view.finding(
        NO_SIGNAL,
        "critical" if dead else "warning",
        metric,
        share,
        title="Almost no sample carries a learning signal",
        evidence=evidence,
        why=why,
        limit=floor,
    )


def _lowest_reward(view: View) -> tuple[str, list[float]]:
    """Without any spread: 0 on rows whose total reward (the task's where none is logged) equals the lowest so far exactly, else 1."""
    reward = view.first_logged("reward.total.mean", view.task.name)
    if reward.n < 4:
        return reward.name, []
    lowest = min(*reward.first, *reward.x)
    return reward.name, [float(v > lowest) for v in reward.x]


def _no_better(view: View) -> bool:
    """Whether the task reward of the last 12 rows is no higher than what came before them."""
    x = view.task.x
    if len(x) <= 16:
        return True
    return stats.mean(x[-12:]) <= stats.mean(x[:-12])


def _triage(view: View) -> cause.Cause:
    """Why nothing passes, in the order in which it is cheap to check: truncation, verifier and environment, then entropy and difficulty."""
    if (view.now("len.truncated_frac") or 0.0) > 0.5:
        return cause.LENGTH_CAP
    if (view.now("env.error_frac") or 0.0) > 0.2 or (view.now("env.tool_fail_frac") or 0.0) > 0.5:
        return cause.ENVIRONMENT
    likely = cause.likely(view)
    if likely is not cause.DRIFTED:
        return likely
    return cause.CONVERGED if _narrowed(view) else cause.NO_CONTRAST


NARROWED = 0.6
"""Share of the first rows' entropy below which samples of a group are alike because the policy no longer explores."""


def _narrowed(view: View) -> bool:
    entropy = view.series("entropy.mean")
    return entropy.n >= 8 and stats.mean(entropy.x[-3:]) < NARROWED * stats.median(entropy.first[:4])


NO_SIGNAL = Detector(
    id="no_signal",
    organ="signal",
    title="No learning signal",
    needs=((*CHOICES, "task"),),
    rule="Too few samples have an advantage, so the update is nearly empty. Solved prompts look the same and are information.",
    formula="share with a signal < floor on 10 of 12 rows with a task reward no better than before (where a row holds one group: improbable, "
    "p < .005, under the earlier rate of empty rows), or on 4 of 5 where it was twice the floor before or the entropy of three rows is under .6 of "
    "its first; critical at 0 on 10 rows",
    source="DAPO, arXiv 2503.14476, section 3.2",
    remedy="Read the rollouts of one group; fix the verifier, raise the length cap, ease the prompts or sample dynamically.",
    judge=_no_signal,
    parameters=(
        Parameter("floor", 0.2, "fraction", "least share of samples or groups with a signal"),
        Parameter("solved", 0.8, "reward", "task reward in [0, 1] from which few contrasts count as solved prompts"),
    ),
)


def _all_fail(view: View, memory: State) -> tuple[State, Finding | None]:
    failing, now = view.series("group.all_fail_frac"), view.now("group.all_fail_frac")
    if now is None or failing.n < 4:
        return memory, None
    level = view.limit(ALL_FAIL, "share")
    window = failing.x[-5:]
    over = len([x for x in window if x >= level])
    before = stats.median(failing.x[: -min(8, max(1, len(failing.x) // 3))])
    if over < 3 or now < level or before > level - 0.3:
        return memory, None
    why = _triage(view)
    return memory, view.finding(
        ALL_FAIL,
        "warning",
        "group.all_fail_frac",
        now,
        title="Most groups fail completely",
        evidence=f"{now:.0%} of the groups have no passing sample, {level:.0%} or more on {over} of the last {len(window)} rows; "
        f"it was {before:.0%}.",
        why=why,
        baseline=before,
        limit=level,
    )


ALL_FAIL = Detector(
    id="all_fail",
    organ="signal",
    title="Groups where all fail",
    needs=(("group.all_fail_frac",),),
    rule="In most groups no sample passes, where before many did.",
    formula="all_fail >= share on 3 of 5 rows and 30 points above its baseline",
    source="zero-variance groups split by side: all-pass is information, all-fail a fault",
    remedy="In this order: truncation, verifier errors, environment errors, then difficulty.",
    judge=_all_fail,
    parameters=(Parameter("share", 0.6, "fraction", "share of all-fail groups that is too much"),),
)


def _huge_advantage(view: View, memory: State) -> tuple[State, Finding | None]:
    now, series = view.now("adv.abs_max"), view.series("adv.abs_max")
    if now is None or series.n < 8:
        return memory, None
    usual = stats.median(series.x[:-1])
    factor = view.limit(HUGE_ADVANTAGE, "factor")
    if usual <= 0 or now < factor * usual:
        return memory, None
    return memory, view.finding(
        HUGE_ADVANTAGE,
        "warning",
        "adv.abs_max",
        now,
        title="One advantage dwarfs the others",
        evidence=f"The largest advantage is {now:.4g}, {now / usual:.0f} times its median {usual:.3g}.",
        why=cause.ZERO_SPREAD,
        baseline=usual,
        limit=factor * usual,
    )


HUGE_ADVANTAGE = Detector(
    id="huge_advantage",
    organ="signal",
    title="Huge advantage",
    needs=(("adv.abs_max",),),
    rule="The largest advantage is 50 times its own median.",
    formula="adv.abs_max > factor * median",
    source="normalising by a group's standard deviation has no floor in several frameworks",
    remedy="Add a floor to the standard deviation, or drop groups without variance before normalising.",
    judge=_huge_advantage,
    parameters=(Parameter("factor", 50, "-", "multiple of the median that is huge"),),
)
