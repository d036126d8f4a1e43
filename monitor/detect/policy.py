"""Detectors of the policy: importance weights, sampler mismatch, entropy, KL to the reference."""

from __future__ import annotations

from monitor.detect import cause, stats, strain
from monitor.detect.contract import Detector, Finding, Parameter, State
from monitor.detect.outcome import OPENING_ROWS
from monitor.detect.rules import from_strain, support
from monitor.detect.view import View


def _weight_explosion(view: View, memory: State) -> tuple[State, Finding | None]:
    mean = view.series("iw.mean")
    low, high = view.limit(WEIGHT_EXPLOSION, "mean_low"), view.limit(WEIGHT_EXPLOSION, "mean_high")
    outside = [x for x in mean.x[-5:] if not low <= x <= high]
    if view.now("iw.mean") is not None and len(outside) >= 3 and not low <= mean.last <= high:
        why = cause.likely(view)
        signs = support(view, "weights", "mismatch")
        fallen = view.outcome is not None and view.outcome.fallen
        return memory, view.finding(
            WEIGHT_EXPLOSION,
            "critical" if fallen else "warning",
            "iw.mean",
            mean.last,
            title="The importance weights no longer average 1",
            evidence=f"The mean weight is {mean.last:.3g}, outside {low:g} to {high:g} on {len(outside)} of the last {len(mean.x[-5:])} rows"
            + (f"; with it {', '.join(signs)}." if signs else "."),
            why=why,
            baseline=stats.median(mean.first[:5]),
            limit=low if mean.last < low else high,
        )
    return memory, from_strain(view, WEIGHT_EXPLOSION, "Importance weights are concentrating on few tokens", ("weights",), ("mismatch",))


WEIGHT_EXPLOSION = Detector(
    id="weight_explosion",
    organ="policy",
    title="Importance weights explode",
    needs=(("iw.ess", "iw.mean"),),
    rule="The effective sample size collapses or the mean weight leaves 1, and another part of the policy or the reward moves too.",
    formula="iw.ess < baseline / 1.6 or |ln iw.mean| > baseline + .2, by 4 noise units, with a second group; or the mean outside [.5, 2] on 3 of 5",
    source="effective sample size: Kong (1992); truncated weights hide it: Ionides (2008)",
    remedy="Clip the ratio, truncate or mask large weights, lower the staleness, halve the learning rate.",
    judge=_weight_explosion,
    parameters=(
        *strain.parameters("weight_explosion"),
        Parameter("mean_low", 0.5, "ratio", "least mean weight that is normal without a baseline"),
        Parameter("mean_high", 2.0, "ratio", "largest mean weight that is normal without a baseline"),
    ),
)


UNSYNCED_ROWS = 6
"""Newest rows that must, but for one, lie above the level of a sampler that is out of sync."""


def _mismatch(view: View, memory: State) -> tuple[State, Finding | None]:
    found = from_strain(view, MISMATCH, "The sampler is drifting away from the policy that is trained", ("mismatch",), ("weights",))
    if found is not None and found.severity != "watch":
        return memory, found
    return memory, _unsynced(view) or found


def _unsynced(view: View) -> Finding | None:
    """The mismatch has grown out of a negligible start while the reported staleness stayed where it was, so staleness does not explain it."""
    gap, stale = view.series("mismatch.kl.k3"), view.series("stale.mean")
    if view.now(gap.name) is None or gap.n < 2 * UNSYNCED_ROWS or view.now(stale.name) is None:
        return None
    start, level = stats.median(gap.first[:4]), view.limit(MISMATCH, "unsynced")
    high = [x for x in gap.x[-UNSYNCED_ROWS:] if x >= max(level, 10 * start)]
    if len(high) < UNSYNCED_ROWS - 1 or max(stale.x) > stats.median(stale.first[:4]) + 0.5:
        return None
    return view.finding(
        MISMATCH,
        "warning",
        gap.name,
        gap.last,
        title="The sampler no longer samples from the policy that is trained",
        evidence=f"Sampler mismatch is {gap.last:.3g}, at least {level:g} on {len(high)} of the last {UNSYNCED_ROWS} rows; it began at {start:.2g}, "
        f"and the reported staleness is unchanged at {stale.last:.3g}.",
        why=cause.UNSYNCED,
        baseline=start,
        limit=level,
    )


MISMATCH = Detector(
    id="mismatch",
    organ="policy",
    title="Sampler mismatch",
    needs=(("mismatch.kl.k3", "mismatch.logp_absdiff.mean"),),
    rule="The divergence between sampler and trainer grows to a multiple of this run's own level, and something else moves with it; "
    "or it grows out of nothing while the reported staleness does not.",
    formula="ln mismatch.kl.k3 > baseline + ln 3 (ln 2 for the mean log-prob gap) by 4 noise units, with a second group; "
    "or mismatch.kl.k3 >= unsynced and ten times its start on 5 of 6 rows at unchanged stale.mean",
    source="growth in log space, because levels differ by model: dense 1e-5 to 1e-3, mixture of experts 1e-3 to 1e-1 nats per token",
    remedy="At constant staleness check the weight sync first, then sampling temperature and precision; else lower the staleness.",
    judge=_mismatch,
    parameters=(
        *strain.parameters("mismatch"),
        Parameter("unsynced", 0.005, "nats/token", "mismatch that unchanged staleness does not explain, where it began ten times lower"),
    ),
)


def _entropy_high(view: View, memory: State) -> tuple[State, Finding | None]:
    return memory, from_strain(view, ENTROPY_HIGH, "Entropy is rising out of its range", ("entropy",))


ENTROPY_HIGH = Detector(
    id="entropy_high",
    organ="policy",
    title="Entropy rises",
    needs=(("entropy.mean",),),
    rule="Entropy grows to 1.4 times its own level while the task reward does not rise, and something else moves with it.",
    formula="ln entropy.mean > baseline + ln 1.4 by 4 noise units, with a second group; quiet while the task reward rises",
    source="relative, because healthy levels span 1e-4 to 3 nats per token",
    remedy="Set the entropy coefficient to 0, tighten the upper clip, add or raise the KL penalty.",
    judge=_entropy_high,
    parameters=strain.parameters("entropy_high"),
)

REFERENCE_ROWS = 5
"""Rows before the reference level of entropy is taken: the first updates fall fast in healthy runs."""


def _entropy_low(view: View, memory: State) -> tuple[State, Finding | None]:
    entropy, now, outcome = view.series("entropy.mean"), view.now("entropy.mean"), view.outcome
    if now is None or entropy.n < REFERENCE_ROWS + 5 or outcome is None:
        return memory, None
    reference = stats.median(entropy.first[REFERENCE_ROWS:])
    task = view.task.x
    if now > 0.5 * reference:
        return {}, None
    if "halved" not in memory:
        return {"halved": entropy.n, "task": float(f"{stats.mean(task[-5:]):.6g}")}, None
    waited = entropy.n - memory["halved"]
    patience = view.limit(ENTROPY_LOW, "patience")
    if now > view.limit(ENTROPY_LOW, "share") * reference or waited < patience:
        return memory, None
    recent = stats.mean(task[-5:])
    gain = recent - memory["task"]
    if gain > 2 * outcome.noise / 5**0.5 or outcome.solved(view.limit(ENTROPY_LOW, "solved"), 0.85):
        return memory, None
    nonzero = _signal_share(view)
    dying = nonzero is not None and nonzero < 0.2
    level = "critical" if dying and outcome.fallen else "warning" if dying or outcome.dip else "watch"
    return memory, view.finding(
        ENTROPY_LOW,
        level,
        "entropy.mean",
        now,
        title="Entropy has collapsed and the task reward no longer gains",
        evidence=f"Entropy is {now:.3g}, {now / reference:.0%} of its reference {reference:.3g}; in {waited} rows since it halved the task reward "
        f"changed by {gain:+.3g}" + (f"; {nonzero:.0%} of the samples carry a signal." if nonzero is not None else "."),
        why=cause.CONVERGED,
        baseline=reference,
        limit=view.limit(ENTROPY_LOW, "share") * reference,
    )


def _signal_share(view: View) -> float | None:
    """The share of samples or groups that carry a signal on this row, from whatever was logged."""
    for name, flip in (("adv.nonzero_frac", False), ("group.mixed_frac", False), ("group.zero_var_frac", True)):
        value = view.now(name)
        if value is not None:
            return 1 - value if flip else value
    return None


ENTROPY_LOW = Detector(
    id="entropy_low",
    organ="policy",
    title="Entropy collapses",
    needs=(("entropy.mean",), ("task",)),
    rule="Entropy is under 30 % of its reference and the task has gained nothing since it halved; quiet when the task is solved.",
    formula="H < share * median(H, rows 5 to 24) and no task gain for `patience` rows since H < reference / 2, with dying signal or falling task",
    source="Cui et al., arXiv 2505.22617: reward is bought with entropy; no absolute level, see the healthy range above",
    remedy="Raise the upper clip (0.28), add a small entropy bonus, sample prompts dynamically.",
    judge=_entropy_low,
    parameters=(
        Parameter("share", 0.3, "fraction", "share of the reference entropy under which it counts as collapsed"),
        Parameter("patience", 10, "rows", "rows without task gain since entropy halved"),
        Parameter("solved", 0.9, "reward", "task reward in [0, 1] from which low entropy is a solved task"),
    ),
)


def _kl_acceleration(view: View, memory: State) -> tuple[State, Finding | None]:
    return memory, from_strain(view, KL_ACCELERATION, "KL to the reference is accelerating", ("kl",)) or _far_at_once(view)


def _far_at_once(view: View) -> Finding | None:
    """The policy is far from its reference within the run's first rows, where no baseline can say so, and the reward dips."""
    kl, outcome, level = view.series("kl_ref.k3"), view.outcome, view.limit(KL_ACCELERATION, "opening")
    if kl.n > OPENING_ROWS or view.now(kl.name) is None or outcome is None or not outcome.dip or min(kl.x[-2:]) < level:
        return None
    return view.finding(
        KL_ACCELERATION,
        "critical" if outcome.fallen else "warning",
        kl.name,
        kl.last,
        title="The first updates have carried the policy far from its reference",
        evidence=f"KL to the reference is {kl.last:.3g} nats per token on row {kl.n} of the run; with it {outcome.says()}.",
        why=cause.LARGE_UPDATE,
        limit=level,
    )


KL_ACCELERATION = Detector(
    id="kl_acceleration",
    organ="policy",
    title="KL accelerates",
    needs=(("kl_ref.k3",),),
    rule="KL to the reference runs ahead of its own trend by a factor of two, and something else moves with it. Steady growth is no fault.",
    formula="ln KL > trend of the baseline, continued halfway, + ln 2, by 4 noise units, with a second group; or KL >= opening on two of the "
    "run's first 8 rows, with a dip of the task reward",
    source="k3 estimator: Schulman (2020); over-optimisation grows with the root of KL: Gao et al., arXiv 2210.10760",
    remedy="Raise the KL coefficient, halve the learning rate, or reset the reference after a rollback.",
    judge=_kl_acceleration,
    parameters=(*strain.parameters("kl_acceleration"), Parameter("opening", 0.25, "nats/token", "KL that the first rows of a run do not reach")),
)
