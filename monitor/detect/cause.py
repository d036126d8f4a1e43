"""The likely reason among named candidates, from what was changed and what moved first, and what to do about it.

Each candidate is a short name, used to compare diagnoses, and one sentence. ``likely`` reads the same facts for every detector of a row, so the
findings of one incident agree.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from monitor.detect import stats
from monitor.detect.strain import GAP, onset

if TYPE_CHECKING:
    from monitor.detect.view import View


@dataclass(frozen=True, slots=True)
class Cause:
    """``name`` is the candidate and ``sentence`` says it to a person; ``check`` is what would prove it wrong, ``remedy`` what to do first and
    ``knobs`` the settings that do it (keys of :data:`monitor.detect.knobs.KNOBS`)."""

    name: str
    sentence: str
    check: str
    remedy: str
    knobs: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}: {self.sentence}"


STALE = Cause(
    "stale rollouts",
    "the rollouts come from an older policy than before, and their weights are no longer close to 1",
    "with staleness back at its old value the weights and the KL stay as wide as now",
    "Lower the staleness first; clip or truncate the weights, and make smaller steps.",
    ("lag", "weights", "lr"),
)
STEP_SIZE = Cause(
    "learning rate too high",
    "the learning rate was raised, and the policy moved further in one step than the data supports",
    "at the old learning rate, from the last good checkpoint, the same thing happens",
    "Go back to the last good checkpoint and to the old learning rate; clip the gradient norm.",
    ("lr", "grad clip"),
)
LARGE_UPDATE = Cause(
    "updates too large",
    "single updates carry the policy too far: no clipping, too many epochs on one batch, or too high a learning rate",
    "the ratio to the old policy stays near 1 within every step",
    "Clip the ratio, take fewer epochs per batch, halve the learning rate; go back to the last good checkpoint.",
    ("clip high", "epochs", "lr", "grad clip"),
)
MISMATCH = Cause(
    "sampler and trainer disagree",
    "the sampler does not sample from the policy that is trained: temperature, precision or a failed weight sync",
    "log-probabilities of the same tokens agree between sampler and trainer",
    "Compare the log-probabilities of one batch on both sides; then temperature, precision and the weight sync, in this order.",
    ("temperature", "weights"),
)
UNSYNCED = Cause(
    "weight sync failed",
    "the sampler keeps older weights than it reports: a weight sync that fails without an error",
    "the sampler's parameters equal the trainer's right after a sync",
    "Check the weight sync: compare a checksum of the parameters on both sides after one; then precision and temperature.",
    ("temperature",),
)
FARMED = Cause(
    "auxiliary reward farmed",
    "the policy earns an auxiliary reward instead of the task",
    "with the auxiliary reward's weight at 0 the task reward falls all the same",
    "Lower the weight of the auxiliary reward or cap it per sample; add a KL penalty; read the rollouts that earn most of it.",
    ("aux weight", "kl"),
)
VERIFIER = Cause(
    "verifier or environment broke",
    "the reward changed from one row to the next although the policy did not: the verifier, its tests or the environment",
    "rollouts from before the fall, scored again today, keep their old scores",
    "Pause; score rollouts from before the fall again, and look for a test that cannot be met, a changed environment or a flaky check.",
)
CHEATED = Cause(
    "verifier cheated",
    "the configured reward rises while the independent one does not: the policy satisfies the checker, not the task",
    "rollouts with full reward, read by a person, solve the task",
    "Stop; read rollouts that score full on one side and fail on the other, and repair the verifier before training on.",
)
ENTROPY = Cause(
    "entropy pushed up",
    "entropy rose before anything else: an entropy bonus, a high temperature or a loose upper clip",
    "with the entropy coefficient at 0 entropy rises all the same",
    "Set the entropy coefficient to 0, tighten the upper clip, raise the KL coefficient.",
    ("entropy", "clip high", "kl"),
)
CONVERGED = Cause(
    "premature convergence",
    "the policy stopped exploring before the task was solved",
    "at a higher sampling temperature the same checkpoint scores no better on any prompt",
    "Raise the upper clip (0.28), add a small entropy bonus, sample prompts dynamically.",
    ("clip high", "entropy", "filter"),
)
LENGTH_CAP = Cause(
    "answers do not fit",
    "answers reach the length limit and are cut before they can score",
    "with twice the limit as many answers are cut",
    "Raise the limit, shape overlong answers, or mask truncated ones from the loss.",
    ("length", "mask truncated"),
)
NO_CONTRAST = Cause(
    "groups without contrast",
    "all samples of a group score alike: too hard, truncated, or a verifier that cannot tell them apart",
    "rollouts of one group differ in quality when read, and the verifier scores them apart",
    "Read the rollouts of one group; fix the verifier, ease the prompts, or sample them dynamically.",
    ("filter", "temperature"),
)
SOLVED = Cause(
    "dataset solved",
    "nearly every sample passes, so nothing is left to learn from these prompts",
    "held-out prompts of the same kind still fail",
    "Move to harder prompts, or stop here.",
)
FROZEN = Cause(
    "empty updates",
    "no sample carries an advantage, or the parameters are frozen",
    "the weights differ between two checkpoints of these rows",
    "Look at the share of samples with an advantage; then at which parameters are trainable.",
    ("lr",),
)
GATED = Cause(
    "refused updates",
    "the step gate kept updates from being made, so the weights stand where they were before",
    "the events of kind skip on these rows name no reason",
    "Read the reasons in the run's skip events; lower the learning rate or the staleness if they go on.",
    ("lr", "lag"),
)
ZERO_SPREAD = Cause(
    "group spread near zero",
    "an advantage was divided by a standard deviation of almost nothing",
    "the spread of that sample's group is not near zero",
    "Put a floor under the group's standard deviation, or drop groups without variance before normalising.",
    ("scale",),
)
DEAD_CHECK = Cause(
    "check never matches",
    "a reward function whose condition is never met, or always",
    "samples with different answers get different scores from it",
    "Run the function by hand on three rollouts.",
)
ONE_BATCH = Cause(
    "one unusual batch",
    "a single batch with a large gradient; nothing followed from it",
    "the norm stays high on the next rows",
    "Nothing yet; clip the gradient norm if it repeats.",
    ("grad clip",),
)
ENVIRONMENT = Cause(
    "environment failing",
    "episodes end in environment or tool errors rather than in answers",
    "the same episodes, replayed now, end without an error",
    "Read the errors of the newest rollouts; restart or repair the environment before the policy learns to avoid it.",
)
OVERFIT = Cause(
    "training prompts overfitted",
    "the reward on the training prompts no longer carries over to held-out ones",
    "the held-out prompts or their sampling settings changed",
    "Stop at the checkpoint of the best evaluation; widen the training prompts.",
    ("kl",),
)
DRIFTED = Cause(
    "policy drifted",
    "the policy left the region in which it was good; nothing that was logged changed before it",
    "the checkpoint nearest the best reward scores no better when evaluated again",
    "Go back to the checkpoint nearest the peak, halve the learning rate, raise the KL coefficient.",
    ("lr", "kl"),
)
SLOW = Cause(
    "resources contended",
    "longer answers, a slow environment or verifier, or a busy machine",
    "time per generated token is unchanged",
    "Compare generation, environment and update time of the newest rows; look at the length of the answers first.",
)
OVERFLOW = Cause(
    "numeric overflow",
    "an overflow in the loss or in an importance weight, or a batch without a trained token",
    "the row's loss and gradient norm, recomputed from the same batch, are finite",
    "Stop before the optimizer step and go back to the last checkpoint with finite weights.",
    ("grad clip", "lr"),
)
CANDIDATES: tuple[Cause, ...] = (
    OVERFLOW,
    STALE,
    STEP_SIZE,
    MISMATCH,
    UNSYNCED,
    LARGE_UPDATE,
    FARMED,
    CHEATED,
    VERIFIER,
    ENVIRONMENT,
    ENTROPY,
    CONVERGED,
    LENGTH_CAP,
    NO_CONTRAST,
    SOLVED,
    FROZEN,
    GATED,
    ZERO_SPREAD,
    DEAD_CHECK,
    ONE_BATCH,
    OVERFIT,
    SLOW,
    DRIFTED,
)


Answer = TypeVar("Answer")


def _once(question: Callable[[View], Answer]) -> Callable[[View], Answer]:
    """Answer ``question`` once per row, however many detectors ask it."""

    @functools.wraps(question)
    def asked(view: View) -> Answer:
        name = question.__name__
        if name not in view.memo:
            view.memo[name] = question(view)
        answer: Answer = view.memo[name]
        return answer

    return asked


def _stepped_up(view: View, name: str, factor: float, at_least: float = 0.0) -> bool:
    """Whether ``name`` lies, or within the present episode lay, ``factor`` above where the run began and above the median before."""
    series = view.series(name)
    x = series.x
    if len(x) < 4:
        return False
    recent = min(len(x) // 2, max(GAP, 2 + max((onset(b) for b in view.bits.values()), default=0)))
    before, top = min(stats.median(x[:-recent]), stats.median(series.first[: max(4, len(x) - recent)])), max(x[-recent:])
    return top >= max(factor * before, at_least) and top > before


@_once
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


@_once
def aux_climb(view: View) -> str | None:
    """An auxiliary reward that rose steadily over the newest 12 rows, by four times its noise and a fifth of all it ever moved; else None."""
    for series in view.aux:
        x = series.x[-12:]
        if len(x) < 8:
            continue
        rise, moved = stats.mean(x[-3:]) - stats.mean(x[:3]), max(*series.first, *series.x) - min(*series.first, *series.x)
        if rise > max(4 * stats.robust_noise(x), 0.2 * moved) and stats.kendall(x) > 2.5:
            return series.name
    return None


@_once
def sudden(view: View) -> bool:
    """Whether the reward fell from one row to the next while entropy, KL, weights and gradients were in range up to that row."""
    outcome = view.outcome
    if outcome is None or not outcome.fallen:
        return False
    x = view.task.x
    steepest, age = max((x[-i - 1] - x[-i], i - 1) for i in range(1, min(len(x), 16)))
    moved = max((onset(view.bits.get(group, 0)) for group in ("entropy", "kl", "weights", "mismatch", "grad")), default=-1)
    return steepest >= 0.6 * (outcome.best - outcome.recent) and moved <= age


@_once
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
    return LARGE_UPDATE if "weights" in first else DRIFTED
