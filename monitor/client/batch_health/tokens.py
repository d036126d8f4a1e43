"""What one micro-batch of trained tokens adds to the step: sums, counts, maxima and a histogram, all on the device, none read.

Formulas are those of ``monitor.metrics``; KL estimates are k3 of J. Schulman, "Approximating KL Divergence" (2020), as ``expm1(-d) + d``
with ``d = log p - log q``, which stays at or above 0 where ``exp(-d) - 1 + d`` loses its digits. Everything is computed in float64, so
that a log-ratio of 90 is reported as the weight it is.
"""

from __future__ import annotations

import torch

from monitor.client.batch_health.accumulator import Terms


def token_terms(
    logp: torch.Tensor,
    mask: torch.Tensor,
    *,
    behaviour_logp: torch.Tensor | None,
    old_logp: torch.Tensor | None,
    ref_logp: torch.Tensor | None,
    entropy: torch.Tensor | None,
    advantages: torch.Tensor | None,
    removed: torch.Tensor | None,
    values: torch.Tensor | None,
    returns: torch.Tensor | None,
    eps_low: float,
    eps_high: float,
    weight_edges: torch.Tensor,
) -> Terms:
    """Terms of a micro-batch; every tensor is [B, T] on one device, ``mask`` boolean, ``advantages`` [B] or [B, T]."""
    batch = _Masked(mask, weight_edges.dtype)
    rows = torch.full((), len(mask), dtype=batch.dtype, device=mask.device)
    terms = Terms({"rows": rows, "tokens": batch.count}, {}, {})
    policy = logp.to(batch.dtype)
    old = None if old_logp is None else old_logp.to(batch.dtype)
    if behaviour_logp is not None:
        behaviour = behaviour_logp.to(batch.dtype)
        _weights(terms, batch, policy - behaviour, removed, weight_edges)
        if old is not None:
            _mismatch(terms, batch, behaviour - old)
    if old is not None:
        _update(terms, batch, policy - old, advantages, eps_low, eps_high)
    if ref_logp is not None:
        gap = policy - ref_logp.to(batch.dtype)
        terms.sums |= {"ref.n": batch.count, "ref.k1": batch.sum(gap), "ref.k3": batch.sum(k3(gap))}
    if entropy is not None:
        terms.sums |= {"entropy.n": batch.count, "entropy": batch.sum(entropy.to(batch.dtype))}
    if values is not None:
        value = values.to(batch.dtype)
        terms.sums |= {"value.n": batch.count, "value": batch.sum(value)}
        if returns is not None:
            target = returns.to(batch.dtype)
            error = target - value
            terms.sums |= {"return.n": batch.count, "return": batch.sum(target), "return.2": batch.sum(target.square())}
            terms.sums |= {"error": batch.sum(error), "error.2": batch.sum(error.square())}
    return terms


def k3(gap: torch.Tensor) -> torch.Tensor:
    """k3 per token from ``gap = log p - log q`` of samples from p: an estimate of KL(p || q), at least 0."""
    return torch.expm1(-gap).add_(gap).clamp_(min=0.0)


class _Masked:
    """Sums and maxima over the trained tokens; what lies outside the mask, NaN included, has no influence."""

    def __init__(self, mask: torch.Tensor, dtype: torch.dtype) -> None:
        self.mask = mask
        self.dtype = dtype
        self.zero = torch.zeros((), dtype=dtype, device=mask.device)
        self.lowest = torch.full((), float("-inf"), dtype=dtype, device=mask.device)
        self.count = mask.sum(dtype=dtype)

    def sum(self, x: torch.Tensor) -> torch.Tensor:
        return torch.where(self.mask, x, self.zero).sum()

    def max(self, x: torch.Tensor) -> torch.Tensor:
        return torch.where(self.mask, x, self.lowest).amax()

    def share(self, condition: torch.Tensor) -> torch.Tensor:
        """Number of trained tokens where ``condition`` holds."""
        return (condition & self.mask).sum(dtype=self.dtype)


def _weights(terms: Terms, batch: _Masked, log_weight: torch.Tensor, removed: torch.Tensor | None, edges: torch.Tensor) -> None:
    weight = log_weight.exp()
    per_sequence = batch.mask.sum(1, dtype=batch.dtype)
    log_sum = torch.where(batch.mask, log_weight, batch.zero).sum(1)
    filled = per_sequence > 0
    terms.sums |= {
        "iw.n": batch.count,
        "iw": batch.sum(weight),
        "iw.2": batch.sum(weight.square()),
        "iw.above2": batch.share(weight > 2),
    }
    if removed is not None:
        terms.sums |= {"removed.n": batch.count, "removed": batch.share(removed.bool())}
    terms.maxes |= {
        "iw.log": batch.max(log_weight),
        "iw.-log": batch.max(-log_weight),
        "iw.seq": torch.where(filled, log_sum / per_sequence.clamp(min=1), batch.lowest).amax(),
        "iw.seq_abs": torch.where(filled, log_sum.abs(), batch.lowest).amax(),
    }
    counted = batch.mask & ~weight.isnan()
    bins = torch.bucketize(weight, edges, right=True).flatten()
    zeros = torch.zeros(len(edges) + 1, dtype=batch.dtype, device=weight.device)
    terms.hists["iw.hist"] = zeros.scatter_add_(0, bins, counted.flatten().to(batch.dtype))


def _mismatch(terms: Terms, batch: _Masked, gap: torch.Tensor) -> None:
    terms.sums |= {"mismatch.n": batch.count, "mismatch.k3": batch.sum(k3(gap)), "mismatch.abs": batch.sum(gap.abs())}
    terms.maxes["mismatch.abs"] = batch.max(gap.abs())


def _update(terms: Terms, batch: _Masked, log_ratio: torch.Tensor, advantages: torch.Tensor | None, eps_low: float, eps_high: float) -> None:
    ratio = log_ratio.exp()
    terms.sums |= {"ratio.n": batch.count, "ratio": batch.sum(ratio), "old.k3": batch.sum(k3(-log_ratio))}
    terms.maxes["ratio.log"] = batch.max(log_ratio)
    if advantages is not None:
        signed = advantages if advantages.dim() == 2 else advantages[:, None]
        terms.sums |= {
            "clip.n": batch.count,
            "clip.low": batch.share((ratio < 1 - eps_low) & (signed < 0)),
            "clip.high": batch.share((ratio > 1 + eps_high) & (signed > 0)),
        }
