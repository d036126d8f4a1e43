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
    """Whether some row of the newest ``GAP`` + episode rows of ``name`` lies ``factor`` above the median before them."""
    x = view.series(name).x
    if len(x) < 4:
        return False
    recent = min(len(x) // 2, max(GAP, 2 + max((onset(b) for b in view.bits.values()), default=0)))
    before = stats.median(x[:-recent])
    return max(x[-recent:]) >= max(factor * before, at_least) and max(x[-recent:]) > before


def aux_surge(view: View) -> str | None:
    """The auxiliary reward that has left its earlier range upwards by more than that range and five noise units; None when none has."""
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


def sudden(view: View) -> bool:
    """Whether the reward fell from one row to the next while entropy, KL and weights stayed in range up to then."""
    outcome = view.outcome
    if outcome is None or not outcome.fallen:
        return False
    x = view.task.x
    age = next((i for i in range(1, min(len(x), 12)) if x[-i] > outcome.best - 0.4 * (outcome.best - outcome.recent)), 0)
    steepest = max((x[i - 1] - x[i] for i in range(max(1, len(x) - age - 1), len(x))), default=0.0)
    policy = [onset(view.bits.get(group, 0)) for group in ("entropy", "kl", "weights", "mismatch", "grad")]
    return steepest >= 0.7 * (outcome.best - outcome.recent) and max(policy) < age - 1 + 1


def likely(view: View) -> Cause:
    """The best-supported candidate for what is wrong on this row."""
    task, audit = view.now(view.task.name), view.now("reward.audit.mean")
    first = {group: onset(bits) for group, bits in view.bits.items() if onset(bits) >= 0}
    if task is not None and audit is not None and abs(task - audit) >= 0.2:
        return CHEATED if task > audit else VERIFIER
    if _stepped_up(view, "stale.mean", 2.0, 2.0):
        return STALE
    if _stepped_up(view, "opt.lr", 2.0):
        return STEP_SIZE
    if first.get("mismatch", -1) >= max(first.values(), default=0):
        return MISMATCH
    if aux_surge(view) is not None:
        return FARMED
    if "weights" in first or ("grad" in first and "kl" in first):
        return LARGE_UPDATE
    if sudden(view):
        return VERIFIER
    if "entropy" in first and first["entropy"] >= max(v for k, v in first.items() if k != "kl"):
        return ENTROPY
    return OVER_TRAINED
