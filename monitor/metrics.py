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
from collections.abc import Iterable, Sequence
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
    _m(
        "reward.aux.share",
        "reward",
        "fraction",
        -INF,
        INF,
        "Auxiliary share of the signal",
        "within-group covariance of the auxiliary and the total reward over the within-group variance of the total reward, pooled over groups; "
        "1 less it is the task's share",
        _GROUPS,
        "down",
    ),
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
    _m("reward.total.p10", "reward", "reward", -INF, INF, "Total reward, 10th percentile", "10th percentile over S of the total reward"),
    _m("reward.total.p90", "reward", "reward", -INF, INF, "Total reward, 90th percentile", "90th percentile over S of the total reward"),
    _m("reward.shaped.mean", "reward", "reward", -INF, INF, "Shaped reward", "mean over S of the reward after KL penalty and baseline", _SEQS),
    _m("reward.shaped.max", "reward", "reward", -INF, INF, "Best shaped reward", "max over S of the reward after KL penalty and baseline"),
    _m("reward.shaped.min", "reward", "reward", -INF, INF, "Worst shaped reward", "min over S of the reward after KL penalty and baseline"),
    _m(
        "reward.trained.mean",
        "reward",
        "reward",
        -INF,
        INF,
        "Reward of kept groups",
        "mean over the S that filtering kept of the total reward",
        _SEQS,
    ),
    _m("reward.positive.mean", "reward", "reward", 0, INF, "Positive reward", "mean over S of the positive part of the reward", _SEQS),
    _m("reward.kl_penalty.mean", "reward", "reward", -INF, INF, "KL penalty in the reward", "mean over S of -beta * KL as added to the reward"),
    _m("reward.pass_rate", "reward", "fraction", 0, 1, "Pass rate", "share of S with a full task score", _SEQS, "up"),
    _m("reward.fail_rate", "reward", "fraction", 0, 1, "Fail rate", "share of S without a full task score", _SEQS, "down"),
    _m("reward.pass_at_k", "reward", "fraction", 0, 1, "Pass at k", "share of prompt groups with at least one pass", _GROUPS, "up"),
    _m("eval.task.mean", "reward", "reward", -INF, INF, "Held-out task reward", "mean task score on held-out prompts", _SEQS, "up"),
    _m("value.explained_var", "reward", "-", -INF, 1, "Explained variance of the value", "1 - Var(R - V) / Var(R) over T", healthy="up"),
    _m("value.mean", "reward", "reward", -INF, INF, "Value", "mean over T of V before the update", _TOKENS),
    _m("value.max", "reward", "reward", -INF, INF, "Largest value", "max over T of V before the update"),
    _m("value.min", "reward", "reward", -INF, INF, "Smallest value", "min over T of V before the update"),
    _m("value.pred_mean", "reward", "reward", -INF, INF, "Updated value", "mean over T of V after the update", _TOKENS),
    _m("value.clip_frac", "reward", "fraction", 0, 1, "Clipped values", "share of T where the value clip is active", _TOKENS),
    _m("returns.mean", "reward", "reward", -INF, INF, "Return", "mean over T of the return", _TOKENS),
    _m("returns.max", "reward", "reward", -INF, INF, "Largest return", "max over T of the return"),
    _m("returns.min", "reward", "reward", -INF, INF, "Smallest return", "min over T of the return"),
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
    _m("adv.abs_mean", "signal", "advantage", 0, INF, "Mean size of the advantage", "mean of |A|", log=True),
    _m("adv.max", "signal", "advantage", -INF, INF, "Largest signed advantage", "max of A"),
    _m("adv.min", "signal", "advantage", -INF, INF, "Smallest signed advantage", "min of A"),
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
    _m("group.kept_frac", "signal", "fraction", 0, 1, "Groups kept", "share of prompt groups that reach the update", _GROUPS, "up"),
    _m("group.filtered_frac", "signal", "fraction", 0, 1, "Groups filtered out", "share of prompt groups that filtering removed", _GROUPS),
    _m("group.filtered_count", "signal", "groups", 0, INF, "Groups filtered out, count", "number of prompt groups that filtering removed"),
    _m("group.all_pass_count", "signal", "groups", 0, INF, "Groups where all pass, count", "number of groups whose samples all score full"),
    _m("group.all_fail_count", "signal", "groups", 0, INF, "Groups where all fail, count", "number of groups whose samples all score least"),
    # policy
    _m("iw.max", "policy", "ratio", 0, INF, "Largest importance weight", "max over T of exp(log pi - log mu), before truncation", log=True),
    _m("iw.mean", "policy", "ratio", 0, INF, "Mean importance weight", "mean over T of exp(log pi - log mu)", _TOKENS, "steady"),
    _m("iw.min", "policy", "ratio", 0, INF, "Smallest importance weight", "min over T of exp(log pi - log mu)", log=True),
    _m("iw.ess", "policy", "fraction", 0, 1, "Effective sample size", "(sum w)**2 / (|T| * sum w**2) over T", healthy="up"),
    _m(
        "iw.seq_max",
        "policy",
        "ratio",
        0,
        INF,
        "Largest sequence weight, length-normalised",
        "max over S of exp(mean over its tokens of log pi - log mu)",
        log=True,
    ),
    _m(
        "iw.seq_log_absmax",
        "policy",
        "nats",
        0,
        INF,
        "Largest sequence log weight, summed over tokens",
        "max over S of |sum over its tokens of log pi - log mu|",
        log=True,
    ),
    _m("iw.clip_frac", "policy", "fraction", 0, 1, "Weights above 2", "share of T with exp(log pi - log mu) > 2", _TOKENS, "down"),
    _m("iw.mask_frac", "policy", "fraction", 0, 1, "Masked weights", "share of T removed by a weight mask", _TOKENS, "down"),
    _m("iw.low_frac", "policy", "fraction", 0, 1, "Weights below the lower bound", "share of T with a raw weight below the lower threshold", _TOKENS),
    _m("iw.std", "policy", "ratio", 0, INF, "Spread of the weights", "standard deviation over T of the raw weight", log=True),
    _m("iw.abs_dev", "policy", "ratio", 0, INF, "Distance of the weights from 1", "mean over T of |w - 1|", _TOKENS, "down", True),
    _m(
        "iw_applied.mean",
        "policy",
        "ratio",
        0,
        INF,
        "Mean applied weight",
        "mean of the weight as multiplied into the loss, masked = 0",
        healthy="steady",
    ),
    _m("iw_applied.max", "policy", "ratio", 0, INF, "Largest applied weight", "max of the weight after truncation: stops at the cap"),
    _m("iw_applied.min", "policy", "ratio", 0, INF, "Smallest applied weight", "min of the weight as multiplied into the loss, masked = 0"),
    _m("iw_applied.seq_mean", "policy", "ratio", 0, INF, "Mean applied sequence weight", "mean over S of the weight after truncation", _SEQS),
    _m("iw_applied.seq_max_dev", "policy", "ratio", 0, INF, "Largest applied deviation", "max over S of |w - 1| after truncation"),
    _m("entropy.mean", "policy", "nats/token", 0, INF, "Entropy", "mean over T of the exact softmax entropy", _TOKENS, "steady"),
    _m("entropy.max", "policy", "nats/token", 0, INF, "Largest token entropy", "max over T of the exact softmax entropy"),
    _m("entropy.min", "policy", "nats/token", 0, INF, "Smallest token entropy", "min over T of the exact softmax entropy"),
    _m("entropy.std", "policy", "nats/token", 0, INF, "Spread of the entropy", "standard deviation over T of the exact softmax entropy"),
    _m(
        "entropy.mc", "policy", "nats/token", -INF, INF, "Entropy estimate", "minus the mean over T of the sampled log-probability", _TOKENS, "steady"
    ),
    _m(
        "entropy.mc_seq",
        "policy",
        "nats/sequence",
        -INF,
        INF,
        "Sequence entropy estimate",
        "minus the mean over S of the summed log-probability",
        _SEQS,
    ),
    _m("kl_ref.k3", "policy", "nats/token", 0, INF, "KL to the reference", "k3 estimate of KL(pi || pi_ref) over T", _TOKENS, "steady", True),
    _m("kl_ref.k1", "policy", "nats/token", -INF, INF, "KL to the reference (k1)", "mean over T of log pi - log pi_ref", _TOKENS),
    _m(
        "kl_ref.k2",
        "policy",
        "nats/token",
        0,
        INF,
        "KL to the reference (k2)",
        "mean over T of (log pi - log pi_ref)**2 / 2",
        _TOKENS,
        "steady",
        True,
    ),
    _m("kl_ref.k1_iw", "policy", "nats/token", -INF, INF, "KL to the reference, weighted", "mean over T of r * (log pi - log pi_ref)", _TOKENS),
    _m(
        "kl_ref.seq", "policy", "nats/sequence", -INF, INF, "KL to the reference per sequence", "mean over S of the sum of log pi - log pi_ref", _SEQS
    ),
    _m("kl_ref.coef", "policy", "-", 0, INF, "KL coefficient", "coefficient of the KL to the reference"),
    _m("mismatch.kl.k3", "policy", "nats/token", 0, INF, "Sampler mismatch", "k3 estimate of KL(mu || pi_old) over T", _TOKENS, "down", True),
    _m(
        "mismatch.kl.k3.max",
        "policy",
        "nats/token",
        0,
        INF,
        "Largest sampler mismatch",
        "max over T of the k3 estimate of KL(mu || pi_old)",
        log=True,
    ),
    _m("mismatch.kl.k1", "policy", "nats/token", -INF, INF, "Sampler mismatch (k1)", "mean over T of log mu - log pi_old", _TOKENS, "down"),
    _m(
        "mismatch.kl.k2",
        "policy",
        "nats/token",
        0,
        INF,
        "Sampler mismatch (k2)",
        "mean over T of (log mu - log pi_old)**2 / 2",
        _TOKENS,
        "down",
        True,
    ),
    _m(
        "mismatch.kl.biased",
        "policy",
        "nats/token",
        -INF,
        INF,
        "Sampler mismatch, weighted",
        "probability-weighted log gap on sampled tokens: biased",
        _TOKENS,
    ),
    _m(
        "mismatch.kl_rev.k3",
        "policy",
        "nats/token",
        0,
        INF,
        "Reverse sampler mismatch",
        "k3 of KL(pi_old || mu) on samples of mu: biased",
        _TOKENS,
        "down",
        True,
    ),
    _m(
        "mismatch.js", "policy", "nats/token", 0, INF, "Sampler divergence", "Jensen-Shannon style divergence of mu and pi_old", _TOKENS, "down", True
    ),
    _m("mismatch.kl_over_entropy", "policy", "ratio", -INF, INF, "Mismatch over entropy", "sampler mismatch / entropy", _TOKENS, "down", True),
    _m(
        "mismatch.mult_prob_err", "policy", "ratio", 1, INF, "Sampler ratio error", "mean over T of exp(|log mu - log pi_old|)", _TOKENS, "down", True
    ),
    _m(
        "mismatch.mult_prob_err.seq_max",
        "policy",
        "ratio",
        1,
        INF,
        "Largest sampler ratio error",
        "max over S of the mean of exp(|log mu - log pi_old|)",
    ),
    _m("mismatch.logppl_diff", "policy", "nats/token", -INF, INF, "Log-perplexity gap", "mean over S of mean log mu - mean log pi_old", _SEQS),
    _m("mismatch.chi2.token", "policy", "-", -1, INF, "Chi-square of the weights", "mean over T of w**2 - 1", _TOKENS, "down"),
    _m(
        "mismatch.chi2.seq",
        "policy",
        "-",
        -1,
        INF,
        "Chi-square of sequence weights",
        "mean over S of (product of token weights)**2 - 1",
        _SEQS,
        "down",
    ),
    _m(
        "mismatch.chi2.seq_geo",
        "policy",
        "-",
        -1,
        INF,
        "Chi-square of mean weights",
        "mean over S of (geometric mean of token weights)**2 - 1",
        _SEQS,
        "down",
    ),
    _m("mismatch.logp_absdiff.mean", "policy", "nats", 0, INF, "Sampler log-prob gap", "mean over T of |log pi_old - log mu|", _TOKENS, "down", True),
    _m("mismatch.logp_absdiff.max", "policy", "nats", 0, INF, "Largest sampler log-prob gap", "max over T of |log pi_old - log mu|", log=True),
    _m("mismatch.logp_absdiff.min", "policy", "nats", 0, INF, "Smallest sampler log-prob gap", "min over T of |log pi_old - log mu|"),
    _m("mismatch.logp_absdiff.std", "policy", "nats", 0, INF, "Spread of the log-prob gap", "standard deviation over T of |log pi_old - log mu|"),
    _m("mismatch.prob_absdiff.mean", "policy", "probability", 0, 1, "Sampler probability gap", "mean over T of |pi_old - mu|", _TOKENS, "down", True),
    _m("mismatch.prob_absdiff.max", "policy", "probability", 0, 1, "Largest sampler probability gap", "max over T of |pi_old - mu|"),
    _m("mismatch.prob_absdiff.std", "policy", "probability", 0, 1, "Spread of the probability gap", "standard deviation over T of |pi_old - mu|"),
    _m("mismatch.prob_diff.mean", "policy", "probability", -1, 1, "Signed probability gap", "mean over T of pi_old - mu: cancels", _TOKENS),
    _m("mismatch.prob_corr", "policy", "-", -1, 1, "Sampler correlation", "Pearson correlation over T of pi_old and mu", healthy="up"),
    _m("ratio.mean", "policy", "ratio", 0, INF, "Mean PPO ratio", "mean over T of exp(log pi - log pi_old)", _TOKENS, "steady"),
    _m("ratio.max", "policy", "ratio", 0, INF, "Largest PPO ratio", "max over T of exp(log pi - log pi_old)", log=True),
    _m("ratio.min", "policy", "ratio", 0, INF, "Smallest PPO ratio", "min over T of exp(log pi - log pi_old)", log=True),
    _m("ratio.batch_var", "policy", "ratio**2", 0, INF, "Variance of the PPO ratio", "variance of the mean ratio over minibatches", log=True),
    _m("ratio.sample_var", "policy", "ratio**2", 0, INF, "Variance of the PPO ratio over samples", "variance of the ratio over samples", log=True),
    _m("ratio_clamped.mean", "policy", "ratio", 0, INF, "Mean clipped PPO ratio", "mean over T of the ratio after the clip", _TOKENS),
    _m("update.clip_frac", "policy", "fraction", 0, 1, "Clipped tokens", "share of T where the clip is active in the loss (sign-aware)", _TOKENS),
    _m("update.clip_frac_low", "policy", "fraction", 0, 1, "Clipped below", "share of T with r < 1 - eps_low and A < 0", _TOKENS),
    _m("update.clip_frac_high", "policy", "fraction", 0, 1, "Clipped above", "share of T with r > 1 + eps_high and A > 0", _TOKENS),
    _m("update.clip_frac_low.seq_min", "policy", "fraction", 0, 1, "Least clipped below", "min over S of the share of its tokens clipped below"),
    _m("update.clip_frac_high.seq_max", "policy", "fraction", 0, 1, "Most clipped above", "max over S of the share of its tokens clipped above"),
    _m(
        "update.out_of_range_frac",
        "policy",
        "fraction",
        0,
        1,
        "Ratios out of range",
        "share of T with r outside [1 - eps, 1 + eps], any sign",
        _TOKENS,
    ),
    _m("update.out_of_range_low_frac", "policy", "fraction", 0, 1, "Ratios below the range", "share of T with r < 1 - eps, any sign", _TOKENS),
    _m("update.out_of_range_high_frac", "policy", "fraction", 0, 1, "Ratios above the range", "share of T with r > 1 + eps, any sign", _TOKENS),
    _m("update.dual_clip_frac", "policy", "fraction", 0, 1, "Dual-clipped tokens", "share of T with r > c and A < 0", _TOKENS),
    _m("update.clip_range", "policy", "-", 0, INF, "Clip range", "current eps of the PPO clip"),
    _m("update.kl_old.k3", "policy", "nats/token", 0, INF, "KL of the update", "k3 estimate of KL(pi_old || pi) over T", _TOKENS, "steady", True),
    _m("update.kl_old.k1", "policy", "nats/token", -INF, INF, "KL of the update (k1)", "mean over T of log pi_old - log pi", _TOKENS, "steady"),
    _m(
        "update.kl_old.k2",
        "policy",
        "nats/token",
        0,
        INF,
        "KL of the update (k2)",
        "mean over T of (log pi_old - log pi)**2 / 2",
        _TOKENS,
        "steady",
        True,
    ),
    _m(
        "update.kl_old.exact",
        "policy",
        "nats",
        0,
        INF,
        "KL of the update (exact)",
        "KL(pi_old || pi) over the whole action distribution",
        healthy="steady",
    ),
    _m(
        "update.kl_post.k1", "policy", "nats/token", -INF, INF, "KL after the update (k1)", "mean over T of log mu - log pi after the update", _TOKENS
    ),
    _m(
        "update.kl_post.k2",
        "policy",
        "nats/token",
        0,
        INF,
        "KL after the update (k2)",
        "mean over T of (log mu - log pi)**2 / 2 after the update",
        _TOKENS,
    ),
    _m("update.kl_coef", "policy", "-", 0, INF, "Adaptive KL coefficient", "coefficient of KL(pi_old || pi)"),
    # optimizer
    _m("opt.loss", "optimizer", "loss", -INF, INF, "Loss", "the minimised loss"),
    _m("opt.policy_loss", "optimizer", "loss", -INF, INF, "Policy loss", "the policy term of the loss"),
    _m("opt.value_loss", "optimizer", "loss", 0, INF, "Value loss", "the value term of the loss"),
    _m("opt.kl_loss", "optimizer", "loss", -INF, INF, "KL loss", "the KL term of the loss, coefficient included"),
    _m("opt.aux_loss", "optimizer", "loss", -INF, INF, "Router loss", "auxiliary loss of a mixture of experts"),
    _m("opt.entropy_coef", "optimizer", "-", -INF, INF, "Entropy coefficient", "coefficient of the entropy bonus"),
    _m("opt.grad_norm", "optimizer", "L2 norm", 0, INF, "Gradient norm", "global L2 norm before clipping", log=True),
    _m("opt.lr", "optimizer", "1/step", 0, INF, "Learning rate", "learning rate of the step", log=True),
    _m("opt.grad_norm.critic", "optimizer", "L2 norm", 0, INF, "Gradient norm of the critic", "global L2 norm before clipping", log=True),
    _m("opt.lr.critic", "optimizer", "1/step", 0, INF, "Learning rate of the critic", "learning rate of the step", log=True),
    _m("opt.step_ok_frac", "optimizer", "fraction", 0, 1, "Updates that succeeded", "share of optimizer steps that were not skipped", healthy="up"),
    _m("opt.update_norm", "optimizer", "L2 norm", 0, INF, "Update norm", "global L2 norm of the parameter change", log=True),
    _m("opt.skipped", "optimizer", "steps", 0, INF, "Skipped updates", "optimizer steps that the step gate refused"),
    # rollout
    _m("len.completion.mean", "rollout", "tokens", 0, INF, "Completion length", "mean over S of trained tokens", _SEQS, "steady"),
    _m("len.completion.p05", "rollout", "tokens", 0, INF, "Completion length, 5th percentile", "5th percentile over S of trained tokens"),
    _m("len.completion.p50", "rollout", "tokens", 0, INF, "Completion length, median", "median over S of trained tokens"),
    _m("len.completion.p95", "rollout", "tokens", 0, INF, "Completion length, 95th percentile", "95th percentile over S of trained tokens"),
    _m("len.completion.min", "rollout", "tokens", 0, INF, "Shortest completion", "min over S of trained tokens"),
    _m("len.completion.max", "rollout", "tokens", 0, INF, "Longest completion", "max over S of trained tokens"),
    _m("len.completion.p10", "rollout", "tokens", 0, INF, "Completion length, 10th percentile", "10th percentile over S of trained tokens"),
    _m("len.completion.p90", "rollout", "tokens", 0, INF, "Completion length, 90th percentile", "90th percentile over S of trained tokens"),
    _m("len.completion.std", "rollout", "tokens", 0, INF, "Spread of the completion length", "standard deviation over S of trained tokens"),
    _m("len.completion.pass.mean", "rollout", "tokens", 0, INF, "Length of passing completions", "mean over passing S of trained tokens", _SEQS),
    _m("len.completion.fail.mean", "rollout", "tokens", 0, INF, "Length of failing completions", "mean over failing S of trained tokens", _SEQS),
    _m(
        "len.completion.model.mean", "rollout", "tokens", 0, INF, "Model tokens", "mean over S of tokens the model wrote, tool output excluded", _SEQS
    ),
    _m(
        "len.completion.nonempty.mean",
        "rollout",
        "tokens",
        0,
        INF,
        "Length of non-empty completions",
        "mean over non-empty S of trained tokens",
        _SEQS,
    ),
    _m("len.terminated.mean", "rollout", "tokens", 0, INF, "Length of ended completions", "mean over S that ended by themselves", _SEQS),
    _m("len.terminated.min", "rollout", "tokens", 0, INF, "Shortest ended completion", "min over S that ended by themselves"),
    _m("len.terminated.max", "rollout", "tokens", 0, INF, "Longest ended completion", "max over S that ended by themselves"),
    _m("len.prompt.mean", "rollout", "tokens", 0, INF, "Prompt length", "mean over S of prompt tokens", _SEQS),
    _m("len.prompt.min", "rollout", "tokens", 0, INF, "Shortest prompt", "min over S of prompt tokens"),
    _m("len.prompt.max", "rollout", "tokens", 0, INF, "Longest prompt", "max over S of prompt tokens"),
    _m("len.total.mean", "rollout", "tokens", 0, INF, "Sequence length", "mean over S of prompt and completion tokens", _SEQS),
    _m("len.empty_frac", "rollout", "fraction", 0, 1, "Empty completions", "share of S without a token", _SEQS, "down"),
    _m("len.ctx_full_frac", "rollout", "fraction", 0, 1, "Full contexts", "share of S that reach the context limit", _SEQS, "down"),
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
    _m("rep.frac", "rollout", "fraction", 0, 1, "Repetitive completions", "share of S that a compression test calls repetitive", _SEQS, "down"),
    # pace
    _m("stale.mean", "pace", "versions", 0, INF, "Staleness", "mean over S of trainer version - sampler version", _SEQS, "down"),
    _m("stale.max", "pace", "versions", 0, INF, "Largest staleness", "max over S of trainer version - sampler version"),
    _m("stale.min", "pace", "versions", 0, INF, "Smallest staleness", "min over S of trainer version - sampler version"),
    _m("stale.span.mean", "pace", "versions", 0, INF, "Versions inside a trajectory", "mean over S of the sampler versions that wrote it", _SEQS),
    _m("stale.frac_gt0", "pace", "fraction", 0, 1, "Stale samples", "share of S sampled by an older version", _SEQS, "down"),
    _m("stale.dropped", "pace", "samples", 0, INF, "Dropped as stale", "samples dropped because they were too old"),
    _m("stale.queue_s", "pace", "s", 0, INF, "Time in queue", "seconds from sampling to training", healthy="down"),
    _m("perf.step_time_s", "pace", "s", 0, INF, "Step time", "wall time from one row to the next", healthy="down"),
    _m("perf.gen_time_s", "pace", "s", 0, INF, "Generation time", "wall time spent sampling", healthy="down"),
    _m("perf.train_time_s", "pace", "s", 0, INF, "Update time", "wall time spent in forward, backward and optimizer", healthy="down"),
    _m("perf.tok_per_s", "pace", "tokens/s", 0, INF, "Throughput", "tokens processed per second", healthy="up"),
    _m("perf.tok_per_s_gpu", "pace", "tokens/s", 0, INF, "Throughput per GPU", "tokens processed per second and GPU", healthy="up"),
    _m("perf.gen_tok_per_s_gpu", "pace", "tokens/s", 0, INF, "Sampling throughput per GPU", "tokens sampled per second and GPU", healthy="up"),
    _m("perf.mfu", "pace", "fraction", 0, 1, "Model FLOPs utilisation", "achieved / peak FLOP rate", healthy="up"),
    _m("perf.wait_s", "pace", "s", 0, INF, "Waiting for rollouts", "seconds the trainer waited for data", healthy="down"),
    _m("perf.queue_size", "pace", "samples", 0, INF, "Rollout queue", "samples waiting to be trained on"),
    _m("progress.tokens", "pace", "tokens", 0, INF, "Tokens seen", "cumulative sampled tokens"),
    _m("progress.samples", "pace", "sequences", 0, INF, "Samples seen", "cumulative sampled sequences"),
    _m("progress.frac", "pace", "fraction", 0, 1, "Progress", "steps done / steps planned"),
    _m("progress.epoch", "pace", "epochs", 0, INF, "Epoch", "fractional epoch"),
    _m("batch.sequences", "pace", "sequences", 0, INF, "Rollouts in the batch", "|S|: the denominator of every sequence mean"),
    _m("batch.tokens", "pace", "tokens", 0, INF, "Trained tokens in the batch", "|T|: the denominator of every token mean"),
    _m("batch.groups", "pace", "groups", 0, INF, "Groups in the batch", "number of prompt groups: the denominator of every group share"),
    _m("batch.fill_frac", "pace", "fraction", 0, INF, "Batch filled", "samples in the batch / samples asked for"),
    _m("batch.kept_frac", "pace", "fraction", 0, 1, "Batch kept", "share of S that masks let through", healthy="up"),
    _m("batch.masked_token_frac", "pace", "fraction", 0, 1, "Masked tokens", "share of completion tokens outside the loss mask"),
    # behaviour
    _m("env.turns.mean", "behaviour", "turns", 0, INF, "Turns", "mean over S of environment turns", _SEQS),
    _m("env.turns.max", "behaviour", "turns", 0, INF, "Most turns", "max over S of environment turns"),
    _m("env.turns.min", "behaviour", "turns", 0, INF, "Fewest turns", "min over S of environment turns"),
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


@lru_cache(maxsize=1)
def _patterns() -> tuple[tuple[re.Pattern[str], Metric], ...]:
    """FAMILIES compiled, on first use: compiling takes a tenth of the SDK's import time."""
    return tuple((re.compile(pattern), template) for pattern, template in FAMILIES)


@lru_cache(maxsize=65536)
def describe(name: str) -> Metric:
    """The catalogue's entry for ``name``; an entry of organ ``custom`` for a name that the catalogue does not hold."""
    if (known := _BY_NAME.get(name)) is not None:
        return known
    for pattern, template in _patterns():
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

MAX_COUNT = 2**53
"""The largest count that a browser can tell from its neighbours."""


def histogram_problem(name: str, counts: Sequence[int]) -> str | None:
    """Why ``counts`` cannot be stored as the histogram ``name``, or None."""
    histogram = HISTOGRAM_BY_NAME.get(name)
    if histogram is None:
        return f"is no histogram of the catalogue ({', '.join(HISTOGRAM_BY_NAME)})"
    if len(counts) != histogram.bins:
        return f"holds {len(counts)} counts, must be {histogram.bins}"
    if min(counts) < 0 or max(counts) > MAX_COUNT:
        return "holds a count that is negative or too large"
    return None
