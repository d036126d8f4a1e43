"""Surrogate losses per token, and how they become one number. Pure functions.

Shapes: ``logp``, ``old`` and ``mask`` are [B, T], ``advantage`` [B, T]; ``mask`` is true on trained tokens and nothing outside it has any
influence. ``r = exp(logp - old)``. Every surrogate returns the loss per token and the tokens on which its clip took the gradient away
(CISPO: on which it held the weight).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

LOG_RATIO_LIMIT = 20.0
"""Log-ratios enter the exponential within +-20, so that one token cannot turn the loss into infinity."""


class Surrogate(NamedTuple):
    """``loss`` [B, T] to be minimised and ``clipped`` [B, T], both zero outside the mask."""

    loss: Tensor
    clipped: Tensor


def _log_ratio(logp: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, logp - old, 0.0).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def reinforce(logp: Tensor, advantage: Tensor, mask: Tensor) -> Surrogate:
    """``-A log pi``: R. Williams, "Simple statistical gradient-following algorithms" (1992). Knows no old policy and clips nothing."""
    return Surrogate(torch.where(mask, -advantage * logp, 0.0), torch.zeros_like(mask))


def ppo(logp: Tensor, old: Tensor, advantage: Tensor, mask: Tensor, low: float, high: float, dual: float | None = None) -> Surrogate:
    """``-min(r A, clip(r, 1 - low, 1 + high) A)``: Schulman et al., arXiv 1707.06347, equation 7; unequal bounds are DAPO's clip-higher.

    ``dual`` adds a floor ``dual * A`` for negative advantages (Ye et al., arXiv 1912.09729, equation 5), without which a token that became
    much more likely since it was sampled has an unbounded loss.
    """
    ratio = _log_ratio(logp, old, mask).exp()
    objective = torch.minimum(ratio * advantage, ratio.clamp(1 - low, 1 + high) * advantage)
    clipped = ((ratio > 1 + high) & (advantage > 0)) | ((ratio < 1 - low) & (advantage < 0))
    if dual is not None:
        floor = dual * advantage
        held = (advantage < 0) & (objective < floor)
        objective, clipped = torch.where(held, floor, objective), clipped | held
    return Surrogate(torch.where(mask, -objective, 0.0), clipped & mask)


def token_weighted(logp: Tensor, old: Tensor, advantage: Tensor, mask: Tensor) -> Surrogate:
    """``-r A`` without any clip: plain importance sampling by the current token's ratio."""
    ratio = _log_ratio(logp, old, mask).exp()
    return Surrogate(torch.where(mask, -ratio * advantage, 0.0), torch.zeros_like(mask))


def sequence_weighted(logp: Tensor, old: Tensor, advantage: Tensor, mask: Tensor) -> Surrogate:
    """``-sg[prod r] A log pi`` without any clip: the exact correction for a whole sequence, whose weight grows without bound in its length."""
    weight = torch.where(mask, logp - old, 0.0).sum(1, keepdim=True).detach().clamp(max=60.0).exp()
    return Surrogate(torch.where(mask, -weight * advantage * logp, 0.0), torch.zeros_like(mask))


def _mean_log_ratio(logp: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, logp - old, 0.0).sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)


def gspo(logp: Tensor, old: Tensor, advantage: Tensor, mask: Tensor, low: float, high: float) -> Surrogate:
    """Sequence ratio ``s = exp(mean log r)``, clipped as a whole: Zheng et al., arXiv 2507.18071, equations 5 to 7.

    Each token carries its sequence's objective, so that the sequence mean of the loss is the paper's. ``advantage`` must not vary within a
    sequence.
    """
    ratio = _mean_log_ratio(logp, old, mask).exp().expand_as(logp)
    objective = torch.minimum(ratio * advantage, ratio.clamp(1 - low, 1 + high) * advantage)
    clipped = ((ratio > 1 + high) & (advantage > 0)) | ((ratio < 1 - low) & (advantage < 0))
    return Surrogate(torch.where(mask, -objective, 0.0), clipped & mask)


def gspo_token(logp: Tensor, old: Tensor, advantage: Tensor, mask: Tensor, low: float, high: float) -> Surrogate:
    """``s_t = sg[s] * pi / sg[pi]``: GSPO's ratio in value, the token's in gradient; advantages may vary by token (same paper, equation 13)."""
    held = torch.where(mask, logp, 0.0)
    ratio = _mean_log_ratio(logp, old, mask).detach().exp() * (held - held.detach()).exp()
    objective = torch.minimum(ratio * advantage, ratio.clamp(1 - low, 1 + high) * advantage)
    clipped = ((ratio > 1 + high) & (advantage > 0)) | ((ratio < 1 - low) & (advantage < 0))
    return Surrogate(torch.where(mask, -objective, 0.0), clipped & mask)


def cispo(logp: Tensor, old: Tensor, advantage: Tensor, mask: Tensor, high: float) -> Surrogate:
    """``-sg[min(r, 1 + high)] A log pi``: MiniMax, arXiv 2506.13585, equations 4 and 5; no lower bound, as in the paper's experiments.

    The bound is relative to 1, as in the paper; TRL reads its option as the absolute bound.
    """
    ratio = _log_ratio(logp, old, mask).exp().detach()
    return Surrogate(torch.where(mask, -ratio.clamp(max=1 + high) * advantage * logp, 0.0), (ratio > 1 + high) & mask)


def ctpo(logp: Tensor, old: Tensor, advantage: Tensor, mask: Tensor, low: float, high: float) -> Surrogate:
    """Cumulative token ratio with bounds that widen with the position: Zhang et al., arXiv 2605.07331.

    ``c_t`` is the sum of log-ratios up to the t-th trained token, clipped to ``[-low, high] * sqrt(t)`` in log space. The prefix is held
    constant, so that each token's gradient is ``exp(c_t) A grad log pi_t``, the form in which the paper proves the correction unbiased.
    """
    step = _log_ratio(logp, old, mask)
    total = step.cumsum(1).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    total = (total - step).detach() + step
    bound = mask.cumsum(1).clamp(min=1).to(logp.dtype).sqrt()
    bounded = torch.minimum(torch.maximum(total, -low * bound), high * bound)
    objective = torch.minimum(total.exp() * advantage, bounded.exp() * advantage)
    clipped = ((total > high * bound) & (advantage > 0)) | ((total < -low * bound) & (advantage < 0))
    return Surrogate(torch.where(mask, -objective, 0.0), clipped & mask)


def token_mean(loss: Tensor, mask: Tensor, count: Tensor | None = None) -> Tensor:
    """Sum over trained tokens by their number: long sequences weigh more (DAPO, arXiv 2503.14476, equation 8; verl's ``token-mean``).

    ``count`` replaces the number of tokens, where the batch is spread over ranks and the mean is over all of them.
    """
    return torch.where(mask, loss, 0.0).sum() / (mask.sum() if count is None else count).clamp(min=1)


def sequence_mean(loss: Tensor, mask: Tensor, rows: float | None = None) -> Tensor:
    """Mean over sequences of each one's token mean (GRPO, arXiv 2402.03300, equation 3; verl's ``seq-mean-token-mean``)."""
    each = torch.where(mask, loss, 0.0).sum(1) / mask.sum(1).clamp(min=1)
    return each.sum() / (len(each) if rows is None else rows)


def constant_mean(loss: Tensor, mask: Tensor, length: float, rows: float | None = None) -> Tensor:
    """Sum over tokens by a constant, ``rows * length``: no length bias (Dr.GRPO, arXiv 2503.20783; RLOO sums over tokens)."""
    return torch.where(mask, loss, 0.0).sum() / ((loss.shape[0] if rows is None else rows) * length)


def k1(logp: Tensor, ref: Tensor) -> Tensor:
    """``log pi - log ref``: unbiased for KL(pi || ref) under samples of pi, of either sign; its gradient in a loss has mean zero."""
    return logp - ref


def k2(logp: Tensor, ref: Tensor) -> Tensor:
    """``(log pi - log ref)^2 / 2``: biased in value, right in gradient."""
    return (logp - ref).square() / 2


def k3(logp: Tensor, ref: Tensor) -> Tensor:
    """``exp(d) - 1 - d`` with ``d = log ref - log pi``: unbiased and never negative (J. Schulman, "Approximating KL divergence", 2020).

    Written with expm1: ``exp(d) - d - 1`` in single precision is negative near 0.
    """
    gap = (ref - logp).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    return (torch.expm1(gap) - gap).clamp(min=0)


KL = {"k1": k1, "k2": k2, "k3": k3}
