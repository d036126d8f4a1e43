"""The catalogue: every metric the product knows, named and defined once.

Notation used in the formulas: ``pi`` is the policy being optimised, ``pi_old`` the trainer-side policy that defines the PPO ratio, ``mu``
the sampler's policy as it generated the tokens and ``pi_ref`` the frozen reference. ``T`` is the set of trained (loss-mask) tokens, ``S`` the
set of sequences, ``A`` the advantage. Logarithms are natural. KL estimators k1, k2 and k3 follow J. Schulman, "Approximating KL
Divergence" (2020): with samples from p and ``d = log p - log q``, ``k1 = d``, ``k2 = d**2 / 2`` and ``k3 = exp(-d) - 1 + d``.

A name outside the catalogue is stored and drawn as ``custom`` and never judged.
"""

from __future__ import annotations

import bisect
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

ORGANS = ("reward", "signal", "policy", "optimizer", "rollout", "pace", "behaviour", "custom")
"""The parts of a run that can be ill, in reading order.

reward: is the task being learned; signal: do groups still carry a gradient; policy: weights, entropy and KL; optimizer: gradients and
steps; rollout: lengths and repetition; pace: time and staleness; behaviour: what the policy does in its environment; custom: everything
that is drawn but not judged.
"""

INF = math.inf
MAX_NAME_LENGTH = 200


@dataclass(frozen=True, slots=True)
class Metric:
    """One scalar series of a run.

    ``low`` and ``high`` bound every valid finite value (inclusive). ``healthy`` is the direction an engineer wants: ``up``, ``down``,
    ``steady`` or ``none``. ``log`` says that a logarithmic axis reads better. ``aggregate`` tells how the batch becomes one number; series
    with different aggregates must not be compared.
    """

    name: str
    organ: str
    unit: str
    low: float
    high: float
    title: str
    formula: str
    aggregate: str = "batch"
    healthy: str = "none"
    log: bool = False

    def contains(self, value: float) -> bool:
        """Whether a finite ``value`` lies in the metric's range, with room for float32 rounding. Non-finite values are never inside."""
        slack = 1e-5 * max(1.0, abs(value))
        return math.isfinite(value) and self.low - slack <= value <= self.high + slack


def _m(
    name: str,
    organ: str,
    unit: str,
    low: float,
    high: float,
    title: str,
    formula: str,
    aggregate: str = "batch",
    healthy: str = "none",
    log: bool = False,
) -> Metric:
    return Metric(name, organ, unit, low, high, title, formula, aggregate, healthy, log)


_TOKENS, _SEQS, _GROUPS = "token_mean", "sequence_mean", "group_mean"

CATALOGUE: tuple[Metric, ...] = (
    # reward
    _m("reward.task.mean", "reward", "reward", -INF, INF, "Task reward", "mean over S of the verifiable task score alone", _SEQS, "up"),
    _m("reward.aux.mean", "reward", "reward", -INF, INF, "Auxiliary reward", "mean over S of the weighted sum of every non-task reward", _SEQS),
    _m("reward.total.mean", "reward", "reward", -INF, INF, "Total reward", "mean over S of the weighted sum of all rewards", _SEQS, "up"),
    _m("reward.total.std", "reward", "reward", 0, INF, "Total reward spread", "standard deviation over S of the total reward"),
    _m(
        "reward.audit.mean",
        "reward",
        "reward",
        -INF,
        INF,
        "Audit reward",
        "mean over S of a verifier that the policy is not trained on, on the same rollouts",
        _SEQS,
        "up",
    ),
    _m("reward.total.max", "reward", "reward", -INF, INF, "Best total reward", "max over S of the total reward"),
    _m("reward.total.min", "reward", "reward", -INF, INF, "Worst total reward", "min over S of the total reward"),
    _m("reward.pass_rate", "reward", "fraction", 0, 1, "Pass rate", "share of S with a full task score", _SEQS, "up"),
    _m("eval.task.mean", "reward", "reward", -INF, INF, "Held-out task reward", "mean task score on held-out prompts", _SEQS, "up"),
    _m("value.explained_var", "reward", "-", -INF, 1, "Explained variance of the value", "1 - Var(R - V) / Var(R) over T", healthy="up"),
    _m("value.mean", "reward", "reward", -INF, INF, "Value", "mean over T of V before the update", _TOKENS),
    # signal
    _m(
        "adv.nonzero_frac",
        "signal",
        "fraction",
        0,
        1,
        "Samples with an advantage",
        "share of S with |A| > 1e-8",
        _SEQS,
        "up",
    ),
    _m("adv.mean", "signal", "advantage", -INF, INF, "Mean advantage", "mean of A over S", _SEQS),
    _m("adv.abs_max", "signal", "advantage", 0, INF, "Largest advantage", "max of |A| over S", log=True),
    _m("group.all_pass_frac", "signal", "fraction", 0, 1, "Groups where all pass", "share of prompt groups whose samples all score full", _GROUPS),
    _m(
        "group.all_fail_frac",
        "signal",
        "fraction",
        0,
        1,
        "Groups where all fail",
        "share of prompt groups whose samples all score least",
        _GROUPS,
        "down",
    ),
    _m("group.mixed_frac", "signal", "fraction", 0, 1, "Groups with both outcomes", "1 - all_pass_frac - all_fail_frac", _GROUPS, "up"),
    _m(
        "group.zero_var_frac",
        "signal",
        "fraction",
        0,
        1,
        "Groups without variance",
        "share of groups with std(total reward) = 0, before filtering",
        _GROUPS,
    ),
    _m("group.reward_std", "signal", "reward", 0, INF, "Spread within groups", "mean over groups of the within-group standard deviation", _GROUPS),
    # policy
    _m("iw.max", "policy", "ratio", 0, INF, "Largest importance weight", "max over T of exp(log pi - log mu), before truncation", log=True),
    _m("iw.mean", "policy", "ratio", 0, INF, "Mean importance weight", "mean over T of exp(log pi - log mu)", _TOKENS, "steady"),
    _m("iw.min", "policy", "ratio", 0, INF, "Smallest importance weight", "min over T of exp(log pi - log mu)", log=True),
    _m("iw.ess", "policy", "fraction", 0, 1, "Effective sample size", "(sum w)**2 / (|T| * sum w**2) over T", healthy="up"),
    _m("iw.seq_max", "policy", "ratio", 0, INF, "Largest sequence weight", "max over S of exp(mean over its tokens of log pi - log mu)", log=True),
    _m(
        "iw.seq_log_absmax",
        "policy",
        "nats",
        0,
        INF,
        "Largest sequence log weight",
        "max over S of |sum over its tokens of log pi - log mu|",
        log=True,
    ),
    _m("iw.clip_frac", "policy", "fraction", 0, 1, "Weights above 2", "share of T with exp(log pi - log mu) > 2", _TOKENS, "down"),
    _m("iw.mask_frac", "policy", "fraction", 0, 1, "Masked weights", "share of T removed by a weight mask", _TOKENS, "down"),
    _m("entropy.mean", "policy", "nats/token", 0, INF, "Entropy", "mean over T of the exact softmax entropy", _TOKENS, "steady"),
    _m("kl_ref.k3", "policy", "nats/token", 0, INF, "KL to the reference", "k3 estimate of KL(pi || pi_ref) over T", _TOKENS, "steady", True),
    _m("kl_ref.k1", "policy", "nats/token", -INF, INF, "KL to the reference (k1)", "mean over T of log pi - log pi_ref", _TOKENS),
    _m("mismatch.kl.k3", "policy", "nats/token", 0, INF, "Sampler mismatch", "k3 estimate of KL(mu || pi_old) over T", _TOKENS, "down", True),
    _m("mismatch.logp_absdiff.mean", "policy", "nats", 0, INF, "Sampler log-prob gap", "mean over T of |log pi_old - log mu|", _TOKENS, "down", True),
    _m("mismatch.logp_absdiff.max", "policy", "nats", 0, INF, "Largest sampler log-prob gap", "max over T of |log pi_old - log mu|", log=True),
    _m("ratio.mean", "policy", "ratio", 0, INF, "Mean PPO ratio", "mean over T of exp(log pi - log pi_old)", _TOKENS, "steady"),
    _m("ratio.max", "policy", "ratio", 0, INF, "Largest PPO ratio", "max over T of exp(log pi - log pi_old)", log=True),
    _m("update.clip_frac", "policy", "fraction", 0, 1, "Clipped tokens", "share of T where the clip is active in the loss (sign-aware)", _TOKENS),
    _m("update.clip_frac_low", "policy", "fraction", 0, 1, "Clipped below", "share of T with r < 1 - eps_low and A < 0", _TOKENS),
    _m("update.clip_frac_high", "policy", "fraction", 0, 1, "Clipped above", "share of T with r > 1 + eps_high and A > 0", _TOKENS),
    _m("update.kl_old.k3", "policy", "nats/token", 0, INF, "KL of the update", "k3 estimate of KL(pi_old || pi) over T", _TOKENS, "steady", True),
    # optimizer
    _m("opt.loss", "optimizer", "loss", -INF, INF, "Loss", "the minimised loss"),
    _m("opt.policy_loss", "optimizer", "loss", -INF, INF, "Policy loss", "the policy term of the loss"),
    _m("opt.value_loss", "optimizer", "loss", 0, INF, "Value loss", "the value term of the loss"),
    _m("opt.grad_norm", "optimizer", "L2 norm", 0, INF, "Gradient norm", "global L2 norm before clipping", log=True),
    _m("opt.lr", "optimizer", "1/step", 0, INF, "Learning rate", "learning rate of the step", log=True),
    _m("opt.update_norm", "optimizer", "L2 norm", 0, INF, "Update norm", "global L2 norm of the parameter change", log=True),
    _m("opt.skipped", "optimizer", "steps", 0, INF, "Skipped updates", "optimizer steps that the step gate refused"),
    # rollout
    _m("len.completion.mean", "rollout", "tokens", 0, INF, "Completion length", "mean over S of trained tokens", _SEQS, "steady"),
    _m("len.completion.p05", "rollout", "tokens", 0, INF, "Completion length, 5th percentile", "5th percentile over S of trained tokens"),
    _m("len.completion.p50", "rollout", "tokens", 0, INF, "Completion length, median", "median over S of trained tokens"),
    _m("len.completion.p95", "rollout", "tokens", 0, INF, "Completion length, 95th percentile", "95th percentile over S of trained tokens"),
    _m("len.completion.min", "rollout", "tokens", 0, INF, "Shortest completion", "min over S of trained tokens"),
    _m("len.completion.max", "rollout", "tokens", 0, INF, "Longest completion", "max over S of trained tokens"),
    _m("len.truncated_frac", "rollout", "fraction", 0, 1, "Truncated", "share of S stopped by a length or turn limit", _SEQS, "down"),
    _m(
        "rep.adjacent_frac",
        "rollout",
        "fraction",
        0,
        1,
        "Immediate repeats",
        "share of trained tokens equal to the token before them",
        _TOKENS,
        "down",
    ),
    _m(
        "rep.ngram_frac",
        "rollout",
        "fraction",
        0,
        1,
        "Repeated 4-grams",
        "1 - distinct / all 4-grams within each sequence, pooled over S",
        _TOKENS,
        "down",
    ),
    _m(
        "rep.top1_share",
        "rollout",
        "fraction",
        0,
        1,
        "Share of the commonest token",
        "most frequent trained token / all trained tokens",
        _TOKENS,
        "down",
    ),
    # pace
    _m("stale.mean", "pace", "versions", 0, INF, "Staleness", "mean over S of trainer version - sampler version", _SEQS, "down"),
    _m("stale.max", "pace", "versions", 0, INF, "Largest staleness", "max over S of trainer version - sampler version"),
    _m("perf.step_time_s", "pace", "s", 0, INF, "Step time", "wall time from one row to the next", healthy="down"),
    _m("perf.gen_time_s", "pace", "s", 0, INF, "Generation time", "wall time spent sampling", healthy="down"),
    _m("perf.train_time_s", "pace", "s", 0, INF, "Update time", "wall time spent in forward, backward and optimizer", healthy="down"),
    _m("perf.tok_per_s", "pace", "tokens/s", 0, INF, "Throughput", "tokens processed per second", healthy="up"),
    _m("progress.tokens", "pace", "tokens", 0, INF, "Tokens seen", "cumulative sampled tokens"),
    _m("progress.epoch", "pace", "epochs", 0, INF, "Epoch", "fractional epoch"),
    _m("batch.sequences", "pace", "sequences", 0, INF, "Rollouts in the batch", "|S|: the denominator of every sequence mean"),
    _m("batch.tokens", "pace", "tokens", 0, INF, "Trained tokens in the batch", "|T|: the denominator of every token mean"),
    _m("batch.groups", "pace", "groups", 0, INF, "Groups in the batch", "number of prompt groups: the denominator of every group share"),
    # behaviour
    _m("env.turns.mean", "behaviour", "turns", 0, INF, "Turns", "mean over S of environment turns", _SEQS),
    _m("env.tool_calls", "behaviour", "calls", 0, INF, "Tool calls", "mean over S of tool calls", _SEQS),
    _m("env.tool_fail_frac", "behaviour", "fraction", 0, 1, "Failed tool calls", "share of tool calls that failed", healthy="down"),
    _m("env.error_frac", "behaviour", "fraction", 0, 1, "Environment errors", "share of S ended by an environment error", _SEQS, "down"),
)
"""Every exact name. Names with a part chosen by the user are in :data:`FAMILIES`."""

FAMILIES: tuple[tuple[str, Metric], ...] = (
    (
        r"reward\.aux\.(?P<part>[^.]+)\.mean",
        _m(
            "reward.aux.{part}.mean", "reward", "reward", -INF, INF, "Auxiliary reward: {part}", "mean over S of one weighted auxiliary reward", _SEQS
        ),
    ),
    (
        r"reward\.fn\.(?P<part>.+)\.(?:mean|std|max|min)",
        _m("reward.fn.{part}.mean", "reward", "reward", -INF, INF, "Reward function {part}", "raw, unweighted output of one reward function", _SEQS),
    ),
    (r"env\.metric\.(?P<part>.+)", _m("env.metric.{part}", "behaviour", "-", -INF, INF, "{part}", "environment metric named by the run")),
    (r"perf\.phase_s\.(?P<part>.+)", _m("perf.phase_s.{part}", "pace", "s", 0, INF, "Time in {part}", "wall time spent in one phase")),
    (
        r"eval\.(?P<part>.+)",
        _m("eval.{part}", "reward", "-", -INF, INF, "Held-out {part}", "metric of an evaluation on held-out prompts; its cadence is its own"),
    ),
)
"""Pattern and template of the metrics whose name holds a part chosen by the user."""

_BY_NAME = {metric.name: metric for metric in CATALOGUE}
_PATTERNS = tuple((re.compile(pattern), template) for pattern, template in FAMILIES)


@lru_cache(maxsize=65536)
def describe(name: str) -> Metric:
    """The catalogue's entry for ``name``; an entry of organ ``custom`` for a name that the catalogue does not hold."""
    if (known := _BY_NAME.get(name)) is not None:
        return known
    for pattern, template in _PATTERNS:
        if match := pattern.fullmatch(name):
            part = match["part"]
            return Metric(
                name,
                template.organ,
                template.unit,
                template.low,
                template.high,
                template.title.format(part=part),
                template.formula,
                template.aggregate,
                template.healthy,
                template.log,
            )
    return Metric(name, "custom", "-", -INF, INF, name, "logged by the run, not part of the catalogue")


def name_problem(name: object) -> str | None:
    """Why ``name`` cannot name a series, or None. Names are 1 to 200 printable characters without leading or trailing space."""
    if not isinstance(name, str):
        return f"a metric name must be a string, not {type(name).__name__}"
    if not name:
        return "a metric name must not be empty"
    if len(name) > MAX_NAME_LENGTH:
        return f"the metric name starting {name[:40]!r} has {len(name)} characters; at most {MAX_NAME_LENGTH} are allowed"
    if name != name.strip() or not name.isprintable():
        return f"the metric name {name[:40]!r} holds blanks at its ends or unprintable characters"
    return None


@dataclass(frozen=True, slots=True)
class Histogram:
    """Fixed bins shared by every run, so that histograms of different steps and runs add up bin by bin.

    ``edges`` are the n - 1 inner edges of n bins; the first bin is open below and the last open above.
    """

    name: str
    organ: str
    unit: str
    title: str
    edges: tuple[float, ...]

    @property
    def bins(self) -> int:
        return len(self.edges) + 1

    def count(self, values: Iterable[float]) -> list[int]:
        """Counts per bin; bin i holds ``edges[i-1] <= value < edges[i]``. NaN is in no bin."""
        counts = [0] * self.bins
        for value in values:
            if not math.isnan(value):
                counts[bisect.bisect_right(self.edges, value)] += 1
        return counts


HISTOGRAMS: tuple[Histogram, ...] = (
    Histogram(
        "len.completion.hist",
        "rollout",
        "tokens",
        "Completion lengths",
        tuple(float(i) for i in range(1, 9)) + tuple(8 * 2 ** (i / 4) for i in range(1, 56)),
    ),
    Histogram("iw.hist", "policy", "ratio", "Importance weights", tuple(10 ** (-4 + i / 8) for i in range(65))),
    Histogram("adv.hist", "signal", "advantage", "Advantages", tuple(-4 + i / 4 for i in range(33))),
)
"""Completion lengths resolve single tokens up to 8, then quarter octaves to 110,000; weights eighths of a decade from 1e-4 to 1e4."""

HISTOGRAM_BY_NAME = {histogram.name: histogram for histogram in HISTOGRAMS}
