"""The likely reason among named candidates, from what moved first and what was changed.

Each candidate is a short name, used to compare diagnoses, and one sentence. ``likely`` reads the same facts for every detector of a row, so the
findings of one incident agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from monitor.detect import stats
from monitor.detect.strain import GAP, onset

if TYPE_CHECKING:
    from monitor.detect.view import View


@dataclass(frozen=True, slots=True)
class Cause:
    """``name`` is the candidate, ``sentence`` says it to a person and ``check`` how to prove it wrong."""

    name: str
    sentence: str
    check: str

    def __str__(self) -> str:
        return f"{self.name}: {self.sentence}"


STALE = Cause(
    "stale rollouts",
    "the rollouts come from an older policy than before, and their weights are no longer close to 1",
    "with staleness back at its old value the weights and the KL stay as wide as now",
)
STEP_SIZE = Cause(
    "learning rate too high",
    "the learning rate was raised, and the policy moved further in one step than the data supports",
    "at the old learning rate, from the last good checkpoint, the same thing happens",
)
LARGE_UPDATE = Cause(
    "updates too large",
    "single updates carry the policy too far: no clipping, too many epochs on one batch, or too high a learning rate",
    "the ratio to the old policy stays near 1 within every step",
)
MISMATCH = Cause(
    "sampler and trainer disagree",
    "the sampler does not sample from the policy that is trained: temperature, precision or a failed weight sync",
    "log-probabilities of the same tokens agree between sampler and trainer",
)
FARMED = Cause(
    "auxiliary reward farmed",
    "the policy earns an auxiliary reward instead of the task",
    "with the auxiliary reward's weight at 0 the task reward falls all the same",
)
VERIFIER = Cause(
    "verifier or environment broke",
    "the reward changed from one row to the next although the policy did not: the verifier, its tests or the environment",
    "rollouts from before the fall, scored again today, keep their old scores",
)
CHEATED = Cause(
    "verifier cheated",
    "the configured reward rises while the independent one does not: the policy satisfies the checker, not the task",
    "rollouts with full reward, read by a person, solve the task",
)
ENTROPY = Cause(
    "entropy pushed up",
    "entropy rose before anything else: an entropy bonus, a high temperature or a loose upper clip",
    "with the entropy coefficient at 0 entropy rises all the same",
)
LENGTH_CAP = Cause(
    "answers do not fit",
    "answers reach the length limit and are cut before they can score",
    "with twice the limit as many answers are cut",
)
NO_CONTRAST = Cause(
    "groups without contrast",
    "all samples of a group score alike: too hard, too easy, truncated, or a verifier that cannot tell them apart",
    "rollouts of one group differ in quality when read, and the verifier scores them apart",
)
OVER_TRAINED = Cause(
    "policy drifted",
    "the policy left the region in which it was good; nothing that was logged changed before it",
    "the checkpoint nearest the best reward scores no better when evaluated again",
)
OVERFLOW = Cause(
    "numeric overflow",
    "an overflow in the loss or in an importance weight, or a batch without a trained token",
    "the row's loss and gradient norm, recomputed from the same batch, are finite",
)
CANDIDATES: tuple[Cause, ...] = (
    OVERFLOW,
    STALE,
    STEP_SIZE,
    MISMATCH,
    LARGE_UPDATE,
    FARMED,
    CHEATED,
    VERIFIER,
    ENTROPY,
    LENGTH_CAP,
    NO_CONTRAST,
    OVER_TRAINED,
)


def _stepped_up(view: View, name: str, factor: float, at_least: float = 0.0) -> bool:
    """Whether ``name`` lies, or within the present episode lay, ``factor`` above where the run began and above the median before."""
    series = view.series(name)
    x = series.x
    if len(x) < 4:
        return False
    recent = min(len(x) // 2, max(GAP, 2 + max((onset(b) for b in view.bits.values()), default=0)))
    before, top = min(stats.median(x[:-recent]), stats.median(series.first[: max(4, len(x) - recent)])), max(x[-recent:])
    return top >= max(factor * before, at_least) and top > before


def aux_surge(view: View) -> str | None:
    """The auxiliary reward that has left its earlier range upwards by half that range and five noise units; None when none has."""
    for series in view.aux:
        x = series.x
        if len(x) < 6:
            continue
        recent = min(GAP, len(x) // 3)
        before, now = x[:-recent], stats.mean(x[-2:])
        room = max(before) - min(before)
        if now - max(before) > max(0.5 * room, 5 * stats.robust_noise(before)):
            return series.name
    return None


def aux_climb(view: View) -> str | None:
    """An auxiliary reward that rose steadily over the newest 12 rows by four times its noise, wherever it stood before; None when none did."""
    for series in view.aux:
        x = series.x[-12:]
        if len(x) >= 8 and stats.kendall(x) > 2.5 and stats.mean(x[-3:]) - stats.mean(x[:3]) > 4 * stats.robust_noise(x):
            return series.name
    return None


def sudden(view: View) -> bool:
    """Whether the reward fell from one row to the next while entropy, KL, weights and gradients were in range up to that row."""
    outcome = view.outcome
    if outcome is None or not outcome.fallen:
        return False
    x = view.task.x
    steepest, age = max((x[-i - 1] - x[-i], i - 1) for i in range(1, min(len(x), 16)))
    moved = max((onset(view.bits.get(group, 0)) for group in ("entropy", "kl", "weights", "mismatch", "grad")), default=-1)
    return steepest >= 0.6 * (outcome.best - outcome.recent) and moved <= age


def likely(view: View) -> Cause:
    """The best-supported candidate for what is wrong on this row: first what was changed, then who moved first."""
    task, audit = view.now(view.task.name), view.now("reward.audit.mean")
    first = {group: age for group, bits in view.bits.items() if (age := onset(bits)) >= 0}
    oldest = max(first.values(), default=-1)
    if task is not None and audit is not None and abs(task - audit) >= 0.2:
        return CHEATED if task > audit else VERIFIER
    if _stepped_up(view, "stale.mean", 2.0, 2.0):
        return STALE
    if _stepped_up(view, "opt.lr", 2.0):
        return STEP_SIZE
    if "mismatch" in first and first["mismatch"] == oldest and "grad" not in first:
        return MISMATCH
    if aux_surge(view) is not None or (aux_climb(view) is not None and not sudden(view)):
        return FARMED
    if first.get("grad", -2) == oldest or first.get("weights", -1) > first.get("entropy", -1):
        return LARGE_UPDATE
    if first.get("entropy", -1) >= max((age for group, age in first.items() if group != "kl"), default=0):
        return ENTROPY
    if sudden(view):
        return VERIFIER
    return LARGE_UPDATE if "weights" in first else OVER_TRAINED
